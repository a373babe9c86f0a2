PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PARALLEL := -n 3 --dist loadgroup --no-loadscope-reorder

# Hundreds of processes run the tests: each would compile the sources again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup demo docs check test processors faults clean

setup: $(STAMP)

# checkout.pth: benchmarks also run as `python benchmarks/NAME.py`.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed: make PYTHON=python3.12 setup")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test]'
	$(BIN)/python -c 'import pathlib, sysconfig; pathlib.Path(sysconfig.get_path("purelib"), "checkout.pth").write_text("$(CURDIR)")'
	touch $(STAMP)

demo: setup
	$(BIN)/campaign demo

docs: setup
	$(BIN)/mkdocs build --strict --quiet

# ruff and mypy are among the tests (tests/test_code.py): mypy runs beside the others.
check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/pytest $(PARALLEL) -m "not slow and not slurm and not browser and not root"

# Three processes on two cores: many tests wait for processes, jobs and clocks.
test: setup
	.ci/install_slurm
	.ci/install_chromium
	$(BIN)/pytest $(PARALLEL) --durations=30

# The numeric tests with the arithmetic of several processors.
processors: setup
	$(BIN)/python -m tests.processors $(PARALLEL)

faults: setup
	.ci/install_slurm
	$(BIN)/python -m tests.faults
	$(BIN)/python -m tests.faults.fuzz
	$(BIN)/python -m tests.faults.interrupts

clean:
	rm -rf $(VENV) campaign-demo build dist *.egg-info
