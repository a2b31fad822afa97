# The two commands of the README, and the developer's habits.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help demo test check fix lock backends frameworks clean

help: ## this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

$(READY): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "blamespan needs Python 3.11 or newer; say which with: make PYTHON=python3.12 …"; exit 1; }
	@echo "Setting up $(VENV) from the pinned set in requirements/dev.txt (once, about a minute) …"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: $(READY) ## play a failing multi-agent run through the whole line and see who broke it
	@$(BIN)/blamespan demo

test: $(READY) ## the tests; those that need a real backend skip where there is none
	@$(BIN)/python -m pytest

check: $(READY) ## lint, format, types, layers
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

fix: $(READY) ## what the tools can mend by themselves, and the generated files
	@$(BIN)/python -m semconv.registry.generate
	@$(BIN)/python -m tests.settings_reference
	@$(BIN)/python -m tests.support_page
	@$(BIN)/python -m tests.docs.cli_reference
	@$(BIN)/python -m tests.docs.api_reference
	@$(BIN)/python -m tests.metrics_reference
	@$(BIN)/python -m tests.deploy.alert_rules
	@$(BIN)/python -m tests.deploy.dashboards
	@$(BIN)/python -m tests.deploy.grafana_alerts
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

backends: $(READY) ## build a real OpenTelemetry Collector and Jaeger for the e2e suite (needs go)
	@$(BIN)/python -m tests.backends.install all

frameworks: $(READY) ## install the agent frameworks that the suite plays live, each in its own environment
	@$(BIN)/python -m tests.frameworks.install live

LOCK := uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-header --no-annotate --upgrade

lock: ## renew the pinned sets (needs uv)
	$(LOCK) --extra server --extra ranker --group dev -o requirements/dev.txt
	$(LOCK) --extra server -c requirements/dev.txt -o requirements/server.txt
	for group in docs audit; do uv pip compile --group $$group --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-header --no-annotate --upgrade -o requirements/$$group.txt; done

clean: ## remove what the build and the tests left
	rm -rf $(VENV) dist/site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis dist
