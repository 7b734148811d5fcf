# Everything runs in .venv, which is made on first use. `make help` lists the commands.

VENV        ?= .venv
JOBS        ?= 2
PYTEST_ARGS ?=
BENCH       ?= $(filter-out benchmarks/figures.py,$(wildcard benchmarks/*.py))
BENCH_ARGS  ?=

BIN     := $(VENV)/bin
PYTHONS := $(or $(PYTHON),python3 python3.14 python3.13 python3.12 python3.11)
STAMP   := $(VENV)/.installed
CHECKED := $(wildcard actorflow behaviours tests examples benchmarks)
RECENT  := import sys; sys.exit(sys.version_info < (3, 11))

.PHONY: help run test lint bench soak docs-figures format clean
.DEFAULT_GOAL := help

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(STAMP) ## show what the library does (examples/tour.py)
	@if [ ! -f examples/tour.py ]; then \
	  echo "make run: examples/tour.py is missing, so there is nothing to show" >&2; exit 1; fi
	@$(BIN)/python examples/tour.py

test: $(STAMP) ## run the tests, in parallel and in random order (JOBS=2, PYTEST_ARGS=...)
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(PYTEST_ARGS)

lint: $(STAMP) ## check style, types and layers
	$(BIN)/python -m ruff check
	$(BIN)/python -m ruff format --check
	$(BIN)/python -m mypy $(CHECKED)
	$(BIN)/lint-imports --no-logo

bench: $(STAMP) ## run the benchmarks (BENCH=benchmarks/workers.py, BENCH_ARGS=...)
	@scripts=$$(grep -ls '__main__' /dev/null $(BENCH)) || { \
	  echo "make bench: no benchmark to run in: $(or $(BENCH),benchmarks/)" >&2; exit 1; }; \
	for script in $$scripts; do \
	  echo "== $$script"; $(BIN)/python "$$script" $(BENCH_ARGS) || exit; done

soak: $(STAMP) ## run the long tests, with many more examples
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt atheris || \
	  echo "make soak: atheris cannot be installed here, so its test is skipped" >&2
	HYPOTHESIS_PROFILE=soak $(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m soak \
	  -o timeout=1800 -o faulthandler_timeout=2000 $(PYTEST_ARGS)

docs-figures: $(STAMP) ## draw the pictures of docs/ again, with the policy lab
	$(BIN)/python benchmarks/figures.py

format: $(STAMP) ## format the code and mend what ruff can mend
	$(BIN)/python -m ruff check --fix-only
	$(BIN)/python -m ruff format

clean: ## remove the virtual environment, caches and build products
	rm -rf $(VENV) .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist
	find . -name .git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

# -qq leaves pip its errors and nothing else.
$(STAMP): pyproject.toml constraints.txt
	@python=; for candidate in $(PYTHONS); do \
	  if "$$candidate" -c '$(RECENT)' >/dev/null 2>&1; then python=$$candidate; break; fi; done; \
	if [ -z "$$python" ]; then \
	  echo "actorflow needs Python 3.11 or newer; tried: $(PYTHONS)." >&2; \
	  echo "Install one, or name it: make PYTHON=/path/to/python3.12 ..." >&2; exit 1; fi; \
	if ! $(BIN)/python -c '$(RECENT)' >/dev/null 2>&1; then \
	  echo "creating $(VENV) with $$python"; \
	  "$$python" -m venv --clear $(VENV) || { rm -rf $(VENV); exit 1; }; fi
	@echo "installing actorflow and its tools into $(VENV)"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@
