# The two commands of the README are `make demo` and `make test`; each sets everything up by itself.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# `pip install` in the order that keeps gigabytes of CUDA out: the pinned CPU torch comes first.
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
STAMPS := $(VENV)/.stamps

.PHONY: help demo test parity mutants lint types bench docs clean
.DEFAULT_GOAL := help

help: ## Show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## */  make \1\t/' | expand -t 14

$(STAMPS)/venv:
	@echo "driftnorm: making a virtual environment in $(VENV) ..."
	@$(PYTHON) -c 'import sys; sys.exit("driftnorm needs Python 3.10 or newer, this is " + sys.version.split()[0] + "; set PYTHON=...") if sys.version_info < (3, 10) else None'
	@$(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/torch: $(STAMPS)/venv constraints.txt
	@echo "driftnorm: installing the pinned CPU build of torch (about 200 MB, once) ..."
	@$(PIP) torch numpy
	@touch $@

$(STAMPS)/package: $(STAMPS)/torch pyproject.toml
	@echo "driftnorm: installing the package with its plotting extra ..."
	@$(PIP) --editable '.[plots]'
	@touch $@

$(STAMPS)/dev: $(STAMPS)/package
	@echo "driftnorm: installing test and lint tools ..."
	@$(PIP) --editable '.[dev]'
	@echo "driftnorm: installing timm and torchvision for the tests (without their dependencies) ..."
	@$(PIP) --no-deps torchvision timm
	@touch $@

# The report is tested in a real browser. Where there is none and none can be had, those tests are
# skipped: this says why, and never fails.
$(STAMPS)/chromium: $(STAMPS)/venv
	@for name in "$$DRIFTNORM_CHROMIUM" chromium chromium-browser google-chrome chrome; do \
	  if [ -n "$$name" ] && command -v "$$name" > /dev/null; then touch $@; exit 0; fi; \
	done; \
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then \
	  echo "driftnorm: no Chromium, and installing it takes root and apt-get; browser tests are skipped."; exit 0; \
	fi; \
	echo "driftnorm: installing Chromium for the browser tests (about 100 MB, once) ..."; \
	export DEBIAN_FRONTEND=noninteractive; \
	timeout 300 sh -c 'apt-get -qq update && apt-get -qq install --yes --no-install-recommends chromium' \
	  > $@.log 2>&1 < /dev/null && touch $@ \
	  || echo "driftnorm: Chromium could not be installed, browser tests are skipped: $$(tail -n 1 $@.log)"

demo: $(STAMPS)/package ## Train a small network, shift its data, adapt with every method (under 2 minutes)
	@$(BIN)/driftnorm demo

test: $(STAMPS)/dev $(STAMPS)/chromium ## Run all tests (set DRIFTNORM_SHARED and DRIFTNORM_CIFAR10 to include those that need files)
	@$(BIN)/python -m pytest -n 2 --dist worksteal

parity: $(STAMPS)/dev ## Compare the corruptions with PyPI's imagecorruptions-imaug (installs it)
	@$(PIP) --editable '.[parity]'
	@$(BIN)/python -m pytest tests/shifts/test_parity.py

mutants: $(STAMPS)/dev ## Break one rule of the engine at a time, and check that the tests notice (20 minutes)
	@$(BIN)/python tests/mutants.py

lint: $(STAMPS)/dev ## Check style
	@$(BIN)/ruff check && $(BIN)/ruff format --check

types: $(STAMPS)/dev ## Check types
	@$(BIN)/mypy && $(BIN)/mypy --config-file tests/mypy.ini

bench: $(STAMPS)/dev ## Measure speed and memory of every method (about 40 minutes of an idle machine)
	@$(BIN)/python benchmarks/speed.py

docs: $(STAMPS)/dev ## Build the documentation site into site/
	@$(BIN)/python docs/tools/make_pages.py
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

clean: ## Remove the virtual environment and what tools left behind
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
