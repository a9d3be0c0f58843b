# Each of these does all its set-up on a machine with Python 3.11+ and nothing else:
#   make demo    install and run `cordcal demo`
#   make test    install the test dependencies and run the tests
#   make study   install cordcal-study too, which adds `cordcal study`
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Every pip call goes through the constraints: exact versions, and the CPU build of torch.
INSTALL := -m pip --disable-pip-version-check install --quiet --constraint
PIP := $(BIN)/python $(INSTALL) constraints.txt
PYTEST := $(BIN)/python -m pytest
# What an old version can break: all but other libraries, browsers and documents.
MIN_TESTS := tests/_validation tests/_numeric tests/repair tests/properties tests/metrics \
  tests/calibrators tests/evaluate tests/files tests/llm tests/cli tests/report \
  tests/sklearn tests/test_preserving.py tests/test_import.py study/tests

.PHONY: demo study test test-all test-external attack test-min test-install lint types bench docs release-check dated clean

demo: $(VENV)/.installed
	@$(BIN)/cordcal demo

study: $(VENV)/.installed
	@$(PIP) --editable . --editable ./study
	@$(BIN)/cordcal study --help

test: $(VENV)/.test-installed
	$(PYTEST) -n 2 --dist worksteal -m "not slow and not exhaustive"

test-all: $(VENV)/.test-installed
	$(PYTEST) -n 2 --dist worksteal

# The long form of tests/attacks: SECONDS for each kind, a table at the end.
SECONDS ?= 60
attack: $(VENV)/.test-installed
	PYTHONPATH=tests $(BIN)/python -m attacks --seconds $(SECONDS)

# Other projects' tests with our numbers, from their source distributions on the package index, or
# from checkouts in the folder SOURCES. Those that are not found there are skipped with the reason.
SOURCES ?=
test-external: $(VENV)/.bench-installed
	@folder="$(SOURCES)"; [ -n "$$folder" ] || { folder=$$(mktemp -d); \
	  for name in probmetrics torchmetrics; do $(BIN)/python -m pip --disable-pip-version-check download \
	    --quiet --constraint constraints.txt --no-binary :all: --no-deps --dest $$folder $$name || true; done; }; \
	  CORDCAL_EXTERNAL_SOURCES=$$folder $(PYTEST) -n 2 --dist worksteal -rs tests/external; status=$$?; \
	  [ -n "$(SOURCES)" ] || rm -rf $$folder; exit $$status

# The lowest supported versions; no torch, Dask or ONNX, and no real outputs: `test` has those.
test-min: .venv-min/.installed
	CORDCAL_TEST_DATA= .venv-min/bin/python -m pytest -n 2 --dist worksteal -rfEs -m "not slow and not exhaustive" $(MIN_TESTS)

# What a user gets: a plain installation in an empty environment runs the demo.
test-install:
	rm -rf .venv-plain && $(PYTHON) -m venv .venv-plain
	.venv-plain/bin/python $(INSTALL) constraints.txt .
	cd .venv-plain && bin/cordcal demo >demo.txt && tail -n 1 demo.txt
	rm -rf .venv-plain build

lint: $(VENV)/.test-installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	cd study && PYTHONPATH=src ../$(BIN)/lint-imports --no-cache

types: $(VENV)/.test-installed
	$(BIN)/mypy

bench: $(VENV)/.bench-installed
	$(BIN)/python benchmarks/start.py
	$(BIN)/python benchmarks/repair.py
	$(BIN)/python benchmarks/fits.py
	$(BIN)/python benchmarks/metrics.py
	$(BIN)/python benchmarks/scale.py --most 1
	$(BIN)/python benchmarks/skip.py

docs: $(VENV)/.docs-installed
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet docs docs/_build/html
	@echo "docs/_build/html/index.html"

# All that a release needs except its tag: the long checks, and wheels and source distributions
# that run the demo in an empty environment.
release-check: dated lint types test-all test-min test-install docs bench $(VENV)/.release-installed
	rm -rf dist && $(BIN)/python -m build && $(BIN)/python -m build ./study --outdir dist
	for kind in whl tar.gz; do \
	  rm -rf .venv-plain && $(PYTHON) -m venv .venv-plain && \
	  .venv-plain/bin/python $(INSTALL) constraints.txt dist/*.$$kind && \
	  (cd .venv-plain && bin/cordcal demo >demo.txt && tail -n 1 demo.txt && \
	    bin/cordcal study --help >study.txt) || exit 1; \
	done
	rm -rf .venv-plain
	@ls -l dist

# First of all, because the checks after it take an hour.
dated: $(VENV)/.installed
	@$(BIN)/python -c "import cordcal, pathlib, re, sys; \
	  text = pathlib.Path('CHANGELOG.md').read_text(encoding='utf-8'); \
	  dated = re.search(rf'^## {re.escape(cordcal.__version__)} \(\d{{4}}-\d\d-\d\d\)$$', text, re.M); \
	  sys.exit(None if dated else 'CHANGELOG.md: write the day of the release behind its version')"

$(VENV)/bin/python:
	@echo "Making a virtual environment in $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --upgrade pip

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "Installing cordcal and its dependencies (a minute or two the first time) ..."
	@$(PIP) --editable .
	@touch $@

$(VENV)/.test-installed: $(VENV)/.installed study/pyproject.toml
	@echo "Installing the test dependencies (some minutes the first time) ..."
	@$(PIP) --editable ".[all]" --editable ./study --group test --group lint
	@touch $@

$(VENV)/.docs-installed: $(VENV)/.test-installed
	@$(PIP) --group docs
	@touch $@

$(VENV)/.release-installed: $(VENV)/.test-installed
	@$(PIP) --group release
	@touch $@

$(VENV)/.bench-installed: $(VENV)/.test-installed
	@$(PIP) --group bench
	@touch $@

.venv-min/.installed: pyproject.toml study/pyproject.toml constraints-min.txt
	@echo "Installing the lowest supported versions in .venv-min ..."
	@$(PYTHON) -m venv .venv-min
	@.venv-min/bin/python $(INSTALL) constraints-min.txt --editable ".[figures,hdf5]" \
	  --editable ./study pytest pytest-xdist hypothesis array-api-strict pandas skops pyyaml
	@touch $@

clean:
	rm -rf $(VENV) .venv-min .venv-plain build dist docs/_build .pytest_cache .mypy_cache .ruff_cache
