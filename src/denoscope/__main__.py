"""``python -m denoscope``, which ``accelerate launch -m denoscope`` needs."""

from denoscope.cli.main import main

if __name__ == "__main__":
    main()
