# Everything runs in .venv. Each command installs what it needs on first use, and nothing more:
# `make run` the library alone, `make test` the tools, `make bench` the libraries it compares with.
# `make help` lists the commands.

VENV        ?= .venv
# More than the two processors of CI: many tests wait for other processes and for the disk.
JOBS        ?= 3
PYTEST_ARGS ?=
BENCH       ?= $(filter-out benchmarks/figures.py,$(wildcard benchmarks/*.py))
BENCH_ARGS  ?=

BIN     := $(VENV)/bin
PYTHONS := $(or $(PYTHON),python3 python3.14 python3.13 python3.12 python3.11)
CHECKED := $(wildcard actorflow tests examples benchmarks)
RECENT  := import sys; sys.exit(sys.version_info < (3, 11))
USABLE  := import pip, sys; sys.exit(sys.version_info < (3, 11))

# Stamps: each is as new as the last installation of that set of packages.
LIBRARY := $(VENV)/.library
TOOLS   := $(VENV)/.tools
PEERS   := $(VENV)/.peers

.PHONY: help run test lint bench soak docs docs-figures format clean
.DEFAULT_GOAL := help

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(LIBRARY) ## show what the library does (examples/tour.py)
	@echo "running examples/tour.py, which takes about 8 s"
	@$(BIN)/python examples/tour.py

test: $(TOOLS) ## run the tests, in parallel and in random order (JOBS=3, PYTEST_ARGS=...)
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(PYTEST_ARGS)

lint: $(TOOLS) ## check style, types and layers
	$(BIN)/python -m ruff check
	$(BIN)/python -m ruff format --check
	$(BIN)/python -m mypy $(CHECKED)
	$(BIN)/lint-imports --no-logo

bench: $(PEERS) ## run the benchmarks (BENCH=benchmarks/workers.py, BENCH_ARGS=...)
	@scripts=$$(grep -ls '__main__' /dev/null $(BENCH)) || { \
	  echo "make bench: no benchmark to run in: $(or $(BENCH),benchmarks/)" >&2; exit 1; }; \
	for script in $$scripts; do \
	  echo "== $$script"; $(BIN)/python "$$script" $(BENCH_ARGS) || exit; done

soak: $(TOOLS) ## run the long tests, with many more examples
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt atheris || \
	  echo "make soak: atheris cannot be installed here, so its test is skipped" >&2
	HYPOTHESIS_PROFILE=soak $(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m soak \
	  -o timeout=1800 -o faulthandler_timeout=2000 $(PYTEST_ARGS)

# README.md is the first page, so the site has the folders of the repository. The highlighter does not know "python no-run".
docs: $(TOOLS) ## build the documentation site in build/site, offline
	@rm -rf build/pages && mkdir -p build/pages
	@find README.md [A-Z]*.md docs examples benchmarks -name '*.md' -o -path 'docs/*.png' -o -path 'docs/*.py' -o -path 'docs/monitoring/*' -o -path 'examples/*.*' | \
	  tar -cf - -T - | tar -xf - -C build/pages
	@find build/pages -name '*.md' -exec sed -i.bak 's/^\( *```python\) no-run$$/\1/' {} + && find build/pages -name '*.bak' -delete
	$(BIN)/zensical build --strict --clean

docs-figures: $(TOOLS) ## redraw the figures of docs/ with the policy lab and, with Chromium, of the dashboard
	$(BIN)/python benchmarks/figures.py
	$(BIN)/python -m tests.api.figures

format: $(TOOLS) ## format the code and fix what ruff can fix
	$(BIN)/python -m ruff check --fix-only
	$(BIN)/python -m ruff format

clean: ## remove the virtual environment, caches and build products
	rm -rf $(VENV) .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist
	find . -name .git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

$(LIBRARY): EXTRAS :=
$(LIBRARY): WHAT   := actorflow and its 5 dependencies (2 MB to download, about 10 s)
$(TOOLS):   EXTRAS := [dev]
$(TOOLS):   WHAT   := actorflow, all extras and the development tools (220 MB to download, about 2 min)
$(PEERS):   EXTRAS := [bench-peers]
$(PEERS):   WHAT   := actorflow and the libraries it is measured against (20 MB to download, about 20 s)

# Two installations must not write to one environment at the same time.
.NOTPARALLEL:

# What pip prints goes to a log, shown only if it fails; the slow steps are announced as they begin.
$(LIBRARY) $(TOOLS) $(PEERS): pyproject.toml constraints.txt
	@python=; for candidate in $(PYTHONS); do \
	  if "$$candidate" -c '$(RECENT)' >/dev/null 2>&1; then python=$$candidate; break; fi; done; \
	if [ -z "$$python" ]; then \
	  echo "actorflow needs Python 3.11 or newer; tried: $(PYTHONS)." >&2; \
	  echo "Install one, or name it: make PYTHON=/path/to/python3.12 ..." >&2; exit 1; fi; \
	if ! $(BIN)/python -c '$(USABLE)' >/dev/null 2>&1; then \
	  echo "creating $(VENV) with $$("$$python" --version) (about 5 s)"; \
	  "$$python" -m venv --clear $(VENV) || { rm -rf $(VENV); exit 1; }; fi
	@echo "installing $(WHAT)"
	@started=$$(date +%s); log=$@.log; : >$$log; \
	{ $(BIN)/python -m pip install --disable-pip-version-check --no-input --progress-bar off \
	    -c constraints.txt -e '.$(EXTRAS)' 2>&1 || echo failed; } | \
	while read -r line; do \
	  printf '%s\n' "$$line" >>$$log; \
	  case $$line in \
	    failed) cat $$log >&2; exit 1;; \
	    *Retrying*) echo "  $$line";; \
	    Downloading*\ MB*) set -- $$line; echo "  downloading $${2%-*-*-*} $$3 $$4";; \
	    Installing\ collected\ packages:*) set -- $$line; echo "  unpacking $$(($$# - 3)) packages";; \
	  esac; done && \
	echo "installed in $$(($$(date +%s) - started)) s; $(VENV) takes $$(du -sh $(VENV) | cut -f1)"
	@touch $@ $(LIBRARY)
