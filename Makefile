# Two commands do all the set-up on a machine with Python 3.11+ and nothing else:
#   make demo    install and run `cordcal demo`
#   make test    install the test dependencies and run the tests
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Every pip call goes through the constraints: exact versions, and the CPU build of torch.
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
PYTEST := $(BIN)/python -m pytest

.PHONY: demo test test-all lint types bench docs clean

demo: $(VENV)/.installed
	@$(BIN)/cordcal demo

test: $(VENV)/.test-installed
	$(PYTEST) -n 2 --dist worksteal -m "not slow"

test-all: $(VENV)/.test-installed
	$(PYTEST) -n 2 --dist worksteal

lint: $(VENV)/.test-installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test-installed
	$(BIN)/mypy

bench: $(VENV)/.bench-installed
	$(BIN)/python benchmarks/repair.py
	$(BIN)/python benchmarks/fits.py
	$(BIN)/python benchmarks/metrics.py
	$(BIN)/python benchmarks/scale.py --most 1

$(VENV)/bin/python:
	@echo "Making a virtual environment in $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --upgrade pip

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "Installing cordcal and its dependencies (a minute or two the first time) ..."
	@$(PIP) --editable .
	@touch $@

$(VENV)/.test-installed: $(VENV)/.installed
	@echo "Installing the test dependencies (some minutes the first time) ..."
	@$(PIP) --editable ".[all]" --group test --group lint
	@touch $@

$(VENV)/.bench-installed: $(VENV)/.test-installed
	@$(PIP) --group bench
	@touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
