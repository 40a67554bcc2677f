# `make demo` and `make test` are each enough on a machine with Python 3.11 or newer, pip and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 2

.PHONY: demo test check clean

demo: $(VENV)/demo-installed
	$(BIN)/goodness demo $(ARGS)

test: $(VENV)/dev-installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) $(ARGS)

check: $(VENV)/dev-installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright

$(VENV)/demo-installed: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[demo]'
	touch $@

$(VENV)/dev-installed: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@ $(VENV)/demo-installed

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "goodness needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)

clean:
	rm -rf $(VENV) runs
