# `make` lists the targets. Everything is built where it is first needed, and only once.

PYTHON ?= python3
ARGS ?=

# The release that a soak runs on where there is no Ascend engine, and the last one without the clamp.
RELEASE = 0.5.23
RELEASE_WITHOUT_CLAMP = 0.5.18

VENV = .venv
BIN = $(VENV)/bin
STAMP = $(VENV)/.setup

.DEFAULT_GOAL = help
.PHONY: help setup soak test test-fast lint prometheus dashboards picture spec measures architecture scenarios peers bench client-cost long-soak clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## put the controller into .venv
	@echo "$(BIN)/lastpage is ready"

soak: $(STAMP) ## launch SGLang, drive its page pool to exhaustion for 60 s, print a verdict (ARGS="--pool-pages 256")
	@$(if $(filter --engine --engine=%,$(ARGS)),,$(BIN)/lastpage engine ensure $(RELEASE))
	@$(BIN)/lastpage soak $(ARGS)

test: lint prometheus ## lint and pass every test, those that boot a real SGLang included
	$(BIN)/python -m pytest -m "not real" --numprocesses auto $(ARGS)
	@$(BIN)/lastpage engine install $(RELEASE)
	@$(BIN)/lastpage engine install $(RELEASE_WITHOUT_CLAMP)
	$(BIN)/python -m pytest -m real $(ARGS)

test-fast: lint prometheus ## lint and pass the tests that start no process: a minute
	$(BIN)/python -m pytest -m "not real and not processes" --numprocesses auto $(ARGS)

lint: $(STAMP) ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Its tools judge the alerts, and a test has a real one scrape a real run.
prometheus: ## have Debian's Prometheus, which the tests of the monitoring need
	@command -v promtool > /dev/null && command -v prometheus > /dev/null || { \
		command -v apt-get > /dev/null || { echo "make: prometheus and promtool are missing; install Prometheus 2.40 or newer and put both on PATH" >&2; exit 1; }; \
		[ "$$(id -u)" = 0 ] || { echo "make: prometheus and promtool are missing; install them: sudo apt-get install --no-install-recommends prometheus" >&2; exit 1; }; \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends prometheus > /dev/null; }

dashboards: $(STAMP) ## write the JSON of the Grafana dashboards anew
	$(BIN)/python -m dashboards.build

spec: $(STAMP) ## write docs/spec.md anew: every key of a spec, from the models that read one
	$(BIN)/python -m service.report.spec_page > docs/spec.md.new
	@mv docs/spec.md.new docs/spec.md

measures: $(STAMP) ## write docs/measures.md anew: every measure, series and recorded field, from the registry
	$(BIN)/python -m service.report.measures_page > docs/measures.md.new
	@mv docs/measures.md.new docs/measures.md

architecture: $(STAMP) ## draw the rooms of docs/architecture.md anew, from the imports
	$(BIN)/python docs/draw_architecture.py

picture: $(STAMP) prometheus ## draw docs/pool-pressure.png: three real runs, as a real Prometheus saw them
	@$(BIN)/lastpage engine ensure $(RELEASE)
	LASTPAGE_PICTURE=docs/pool-pressure.png $(BIN)/python -m pytest tests/real/test_prometheus.py

bench: $(STAMP) ## what the probe costs: decode steps a second with it and without
	@$(BIN)/lastpage engine ensure $(RELEASE)
	$(BIN)/python -m benchmarks.probe_cost $(ARGS)

client-cost: $(STAMP) ## what the load generator costs: its CPU time a request, against SGLang's bench_serving
	@$(BIN)/lastpage engine ensure $(RELEASE)
	$(BIN)/python -m benchmarks.client_cost $(ARGS)

long-soak: $(STAMP) ## a simulated soak of 12 hours on 4,096 pages, and the controller's memory meanwhile (eight minutes)
	$(BIN)/python -m benchmarks.long_soak $(ARGS)

scenarios: $(STAMP) ## write docs/scenarios.md: every scenario on two pools, 60 s each (half an hour)
	@$(BIN)/lastpage engine ensure $(RELEASE)
	$(BIN)/python -m benchmarks.scenarios $(ARGS)

peers: $(STAMP) ## write docs/peers.md: critical steps of scenarios and of SGLang's bench_serving (ten minutes)
	@$(BIN)/lastpage engine ensure $(RELEASE)
	$(BIN)/python -m benchmarks.peers $(ARGS)

clean: ## delete .venv and caches; installed engines stay (`lastpage engine remove` deletes one)
	rm -rf $(VENV) *.egg-info build .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Written last, so that an interrupted setup is done again. A virtual environment without a working pip is one that was
# interrupted itself, or whose Python is gone: it is made anew.
$(STAMP): pyproject.toml
	@command -v $(PYTHON) > /dev/null || { echo "make: there is no $(PYTHON); install Python 3.10 or newer, or say make PYTHON=PATH" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "make: $(PYTHON) is $$($(PYTHON) -V 2>&1); lastpage needs Python 3.10 or newer: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2> /dev/null || { echo "make: $(PYTHON) cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@$(BIN)/python -m pip --version > /dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install -qq --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[dev]'
	@touch $@
