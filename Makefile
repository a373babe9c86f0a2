PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup demo docs test faults lint clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed: make PYTHON=python3.12 setup")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test]'
	touch $(STAMP)

demo: setup
	$(BIN)/campaign demo

docs: setup
	$(BIN)/mkdocs build --strict --quiet

lint: setup
	$(BIN)/ruff check .
	$(BIN)/mypy

test: setup
	.ci/install_slurm
	.ci/install_chromium
	$(BIN)/pytest -n 2 --dist loadgroup

faults: setup
	.ci/install_slurm
	$(BIN)/python -m tests.faults
	$(BIN)/python -m tests.faults.fuzz

clean:
	rm -rf $(VENV) campaign-demo build dist *.egg-info
