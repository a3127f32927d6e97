# make demo       set everything up and pair real words of two models
# make test       set everything up, then lint, type-check and test (and build the documentation), in a few minutes
# make test-all   the same with the thorough tests, half an hour or more: what CI runs
# make test-slow  the tests that are left, minutes each
# make docs       the documentation as a site, in site/
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-all test-slow check docs format clean

demo: $(VENV)/.core
	$(BIN)/kedge demo

test: check
	OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest -n 2 --dist loadfile

test-all: test
	OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest -m "thorough and not slow and not gpu"

test-slow: check
	OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest -m "slow and not gpu"

check: $(VENV)/.dev
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) site build kedge-demo kedge-reproduce .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: $(BIN)/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[report]'
	touch $@

$(VENV)/.dev: $(BIN)/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@
