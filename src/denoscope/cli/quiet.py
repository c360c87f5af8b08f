"""Keep the libraries' own messages out of what a command says."""

import sys
import warnings


def quieten_libraries() -> None:
    """Their progress bars, advice to developers and warnings would drown what a command has to say."""
    from diffusers.utils import logging as of_diffusers
    from huggingface_hub.utils import enable_progress_bars
    from transformers.utils import logging as of_transformers

    for logging in (of_diffusers, of_transformers):
        logging.set_verbosity_error()
        logging.disable_progress_bar()
    enable_progress_bars()  # transformers turned off that of downloads, too
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
