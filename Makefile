# `make demo` and `make test` are each enough on a machine with Python 3.11 or newer, pip and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 2

.PHONY: demo test check paper clean

demo: $(VENV)/demo-installed
	$(BIN)/goodness demo $(ARGS)

test: $(VENV)/dev-installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) $(ARGS)

# Every table, figure and finding of the paper, from runs of seconds on digits: the numbers mean nothing, the path is the whole one.
paper: $(VENV)/dev-installed
	rm -rf runs/paper-tiny
	$(BIN)/goodness reproduce all --scale tiny --out runs/paper-tiny $(ARGS)

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
