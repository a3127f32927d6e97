# make demo       set everything up and pair real words of two models
# make test       set everything up, then lint, type-check and test, in a few minutes
# make test-all   the same with all optional packages and the thorough tests, half an hour or more: what CI runs
# make test-slow  the tests that are left, minutes each
# make coverage   which lines the tests of `make test` run
# make docs       the documentation as a site, in site/
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable
PYTEST := OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest

.PHONY: demo test test-all test-slow coverage check docs format clean

demo: $(VENV)/.core
	$(BIN)/kedge demo

test: check
	$(PYTEST) -n 2 --dist loadfile

test-all: $(VENV)/.dev-all test
	$(PYTEST) -n 2 --dist loadfile -m "thorough and not slow and not gpu"

test-slow: $(VENV)/.dev-all check
	$(PYTEST) -m "slow and not gpu"

coverage: $(VENV)/.dev
	$(PYTEST) -n 2 --dist loadfile --cov --cov-report=term:skip-covered

check: $(VENV)/.dev
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.dev-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) site build dist kedge-demo kedge-reproduce .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: $(BIN)/python pyproject.toml constraints.txt
	$(INSTALL) '.[report]'
	touch $@

# .dev, .dev-docs, .dev-all: the extra of that name is installed.
$(addprefix $(VENV)/.,dev dev-docs dev-all): $(VENV)/.%: $(BIN)/python pyproject.toml constraints.txt
	$(INSTALL) '.[$*]'
	touch $@
