# The README's two commands are `make run` and `make test`. Each sets up all that it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: run quick test test-slow check setup setup-test clean

run: setup
	$(BIN)/ostinato demo $(ARGS)

quick: setup
	$(BIN)/ostinato demo --quick $(ARGS)

test: setup-test
	$(BIN)/pytest

test-slow: setup-test
	$(BIN)/pytest -m slow --timeout 14400

check: setup-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest tests/test_layers.py

setup: $(VENV)/.run
setup-test: $(VENV)/.test

$(VENV)/.run: pyproject.toml constraints.txt scripts/setup.sh
	PYTHON=$(PYTHON) bash scripts/setup.sh run

$(VENV)/.test: pyproject.toml constraints.txt scripts/setup.sh
	PYTHON=$(PYTHON) bash scripts/setup.sh test

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
