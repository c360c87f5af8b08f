# Everything a newcomer needs: make demo, make test. Each target makes what it depends on.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: install demo test lint docs peers clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

demo: install
	$(BIN)/denoscope trace "a red circle above a blue square"

test: install
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: install
	$(BIN)/python -m docs.make_pictures
	$(BIN)/python -m docs.make_gallery

PEERS := .venv-peers/bin

.venv-peers/.installed:
	$(PYTHON) -m venv .venv-peers
	$(PEERS)/python -m pip install --quiet torch==2.14.1 torchvision==0.29.1
	$(PEERS)/python -m pip install --quiet denoising-diffusion-pytorch==2.3.4 ema-pytorch==0.8.3 diffusers==0.42.1 \
	  transformers==5.24.0 accelerate==1.15.0 safetensors xarray scipy typer
	touch $@

peers: .venv-peers/.installed
	PYTHONPATH=src $(PEERS)/python -m benchmarks.train_speed --batch 64 --steps 1

clean:
	rm -rf $(VENV) .venv-peers build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
