# `make demo` and `make test` set everything up; they need a package registry and nothing else.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test check faults mutants install

install: $(VENV)/installed

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	rm -rf lm_eval_leakage.egg-info  # what `build` left would hide newer entry points
	$(BIN)/pip install --progress-bar off -c constraints.txt -e '.[dev]'
	touch $@

demo: install
	$(BIN)/lm-eval-leakage enable
	$(BIN)/python -m lm_eval_leakage.lab.demo

test: install
	$(BIN)/lm-eval-leakage enable
	$(BIN)/pytest -n auto -m "not model"
	$(BIN)/pytest -m model

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -q tests/test_import_direction.py

# A quarter of an hour of kills, full disks, damaged files and misbehaving models: docs/reliability.md has its table.
faults: install
	$(BIN)/python -m tests.faults

# Small faults put into the statistics, joining and scoring: which would no test notice? Takes long; it goes on where
# it was stopped. SAMPLE=25 tries at most 25 per module, ONLY=statistics/pairs some modules.
mutants: install
	$(BIN)/pip install --progress-bar off -c constraints.txt -e '.[dev,mutants]'
	$(BIN)/python benchmarks/mutants.py $(if $(SAMPLE),--at-most $(SAMPLE)) $(if $(ONLY),--only $(ONLY))
