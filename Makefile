# Everything a newcomer types. Needs Python 3.11 or later and make; the rest is installed in .venv.
.DEFAULT_GOAL := help
.SUFFIXES:
.PHONY: help install demo ui test test-servers test-cluster long chaos faults check format lock reset clean

VENV := .venv
BIN := $(VENV)/bin
# PYTHON=...       the Python that .venv is made with; by default the first one found that will do.
# TORCH_INDEX=...  an extra package index to take torch from: a CPU or CUDA build (see docs/operate.md).
# PIP_ARGS=...     anything else for `pip install`.
# ARGS=...         anything else for the command of the target.
PYTHON ?=
PYTHONS := $(or $(PYTHON),python3.11 python3.12 python3.13 python3)
TORCH_INDEX ?=
PIP_ARGS ?=
ARGS ?=
# Where it is set, each of hundreds of processes compiles the whole package anew.
unexport PYTHONDONTWRITEBYTECODE
# --no-compile: of 23,000 files Python compiles the quarter that is used, when it is first used.
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile \
	-c requirements.lock $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) $(PIP_ARGS)

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "  variables: PYTHON, TORCH_INDEX, PIP_ARGS, ARGS (see the top of the Makefile)"

install: $(VENV)/.installed ## set up .venv, and nothing else

demo: $(VENV)/.installed ## train, evaluate, gate and release a model from real data
	@$(BIN)/ml-assets demo $(ARGS)

ui: $(VENV)/.installed ## open the asset graph in the browser
	@$(BIN)/ml-assets ui $(ARGS)

test: $(VENV)/.installed-test ## run the tests, three files at a time: many wait
	@$(BIN)/python -m pytest -q -n 3 --dist loadfile $(ARGS)

test-servers: $(VENV)/.installed-test ## run the tests of the tests' own servers: Kubernetes' API, lakeFS
	@$(BIN)/python -m pytest -q -n 2 --dist loadfile -m servers $(ARGS) ml_assets_tests/servers

test-cluster: $(VENV)/.installed-test ## hold the cluster of KUBECONFIG to what we claim of Kubernetes, and our client to it
	@ML_ASSETS_TEST_KUBECONFIG="$${KUBECONFIG:?names no cluster: set it to the file that kubectl uses}" \
		$(BIN)/python -m pytest -q -m "not daemon" $(ARGS) ml_assets_tests/servers/kubernetes/test_claims_*.py \
		ml_assets_tests/launch/kubernetes/api ml_assets_tests/launch/kubernetes/test_lost_pod.py

long: $(VENV)/.installed-test ## run the long tests: a real daemon, planted faults, a year, 200 days and runs, 100 storms
	@$(BIN)/python -m pytest -q -n 3 --dist loadfile -m "daemon or plants or servers" $(ARGS)
	@ML_ASSETS_TEST_YEAR=53 $(BIN)/python -m pytest -q -m daemon $(ARGS) \
		ml_assets_tests/automation/test_year.py
	@ML_ASSETS_TEST_RUN_EVERY=1 $(BIN)/python -m pytest -q $(ARGS) \
		ml_assets_tests/actions/test_two_hundred_days.py
	@ML_ASSETS_TEST_DAYS=67 $(BIN)/python -m pytest -q $(ARGS) \
		ml_assets_tests/extras/scheduled
	@ML_ASSETS_TEST_ROUNDS=100 $(BIN)/python -m pytest -q $(ARGS) \
		ml_assets_tests/assets/released_model/test_storm.py

chaos: $(VENV)/.installed-test ## kill training a hundred times at random (ARGS="-k seed-117" repeats one)
	@$(BIN)/python -m pytest -q -s -m chaos $(ARGS) ml_assets_tests/chaos

faults: $(VENV)/.installed-test ## the fault matrix: hours of faults, added to docs/faults.md (ARGS="--minutes 20 --side-by-side 2")
	@$(BIN)/python -m ml_assets_tests.faults $(ARGS)

check: $(VENV)/.installed-test ## lint, types, layers
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/pyright
	@$(BIN)/lint-imports

format: $(VENV)/.installed-test ## format the code
	@$(BIN)/ruff check --fix --select I .
	@$(BIN)/ruff format .

reset: $(VENV)/.installed ## delete the state (.ml_assets)
	@$(BIN)/ml-assets ops reset $(ARGS)

clean: ## delete .venv and caches; the state stays
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find ml_assets ml_assets_tests -name __pycache__ -type d -prune -exec rm -rf {} +

lock: build/lock/bin/python ## resolve the newest versions again into requirements.lock
	@build/lock/bin/python -m pip install --quiet --disable-pip-version-check \
		--upgrade --upgrade-strategy eager $(PIP_ARGS) '.[test]'
	@sed -n '/^#/p' requirements.lock > build/lock/requirements
	@build/lock/bin/python -m pip freeze --exclude ml_assets \
		| sed -n 's/^\([A-Za-z0-9._-]*==[^+@; ]*\).*/\1/p' \
		| LC_ALL=C sort -f >> build/lock/requirements
	@mv build/lock/requirements requirements.lock
	@git --no-pager diff --stat requirements.lock

# --- what the targets stand on --------------------------------------------------------------------

$(VENV)/.installed: pyproject.toml requirements.lock | $(BIN)/python
	@echo "Installing into $(VENV) (the first time takes minutes: torch is large) ..."
	@$(INSTALL) -e .
	@touch $@

$(VENV)/.installed-test: pyproject.toml requirements.lock | $(BIN)/python
	@echo "Installing into $(VENV) (the first time takes minutes: torch is large) ..."
	@$(INSTALL) -e '.[test]'
	@touch $(VENV)/.installed $@

$(BIN)/python build/lock/bin/python:
	@for python in $(PYTHONS); do \
		"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
		echo "Making $(patsubst %/bin/python,%,$@) with $$("$$python" --version) ($$(command -v "$$python"))"; \
		"$$python" -m venv $(patsubst %/bin/python,%,$@) && exit 0; \
		rm -rf $(patsubst %/bin/python,%,$@); \
		echo "error: '$$python -m venv' failed (on Debian and Ubuntu: install python3-venv)." >&2; \
		exit 1; \
	done; \
	echo "error: Python 3.11 or later is needed; tried: $(PYTHONS)." >&2; \
	echo "       Install it, or name it: make <target> PYTHON=/path/to/python3.11" >&2; \
	exit 1
