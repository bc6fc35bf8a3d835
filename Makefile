# `make demo` and `make test` set everything up; they need a package registry and nothing else.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

# `make CONSTRAINTS=` takes the newest versions; constraints-py310.txt has those for Python 3.10.
CONSTRAINTS ?= constraints.txt
PINNED := $(if $(CONSTRAINTS),-c $(CONSTRAINTS))

# `make unit HARNESS=0.4.12` runs with another lm-eval than the one in the constraints.
HARNESS ?=

.PHONY: demo test unit check docs faults mutants install dist

install: $(VENV)/installed

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	rm -rf lm_eval_leakage.egg-info  # what `build` left would hide newer entry points
	$(BIN)/pip install --progress-bar off $(PINNED) -e '.[dev]'
	$(if $(HARNESS),$(BIN)/pip install --progress-bar off --no-deps lm-eval==$(HARNESS))
	touch $@

demo: install
	$(BIN)/lm-eval-leakage plugin enable
	$(BIN)/python benchmarks/demo.py

# What needs a real model, training or a fresh environment, on three processes, since some wait for Ray: a file's tests
# stay together, since they share what they trained, and the longest files come first.
test: unit
	$(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder -m model

# The tests that need no model and no second process, in a random order (`pytest --randomly-seed=N` repeats one, and
# `-p no:randomly` takes them as they stand in the files).
unit: install
	$(BIN)/lm-eval-leakage plugin enable
	$(BIN)/pytest -n auto --dist worksteal -m "not model"

# What a commit must pass; .pre-commit-config.yaml, .github/workflows/ci.yml and .ci/run call it.
check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -q tests/test_import_direction.py

# The documentation site, without network access: docs/_build/html/index.html. Broken links and unlisted pages are errors.
docs: install
	$(BIN)/sphinx-build -E -W --keep-going -n -q -b html docs docs/_build/html

# What is uploaded to a package index, checked: docs/releasing.md.
dist: install
	rm -rf dist build  # deleted modules linger in build/
	$(BIN)/python -m build --no-isolation
	$(BIN)/twine check --strict dist/*
	$(BIN)/check-wheel-contents dist/*.whl

# A quarter of an hour of kills, full disks, damaged files and misbehaving models: docs/reliability/fault_injection.md has its table.
faults: install
	$(BIN)/python -m tests.faults

# Small faults put into the statistics, joining and scoring: which would no test notice? Takes long; it goes on where
# it was stopped. SAMPLE=25 tries at most 25 per module, ONLY=detectors/partial_orders some modules.
mutants: install
	$(BIN)/pip install --progress-bar off $(PINNED) -e '.[dev,mutants]'
	$(BIN)/python benchmarks/mutants.py $(if $(SAMPLE),--at-most $(SAMPLE)) $(if $(ONLY),--only $(ONLY))
