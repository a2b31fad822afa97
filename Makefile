# The two commands of the README, and the developer's habits.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SERVER := $(VENV)/.server
READY := $(VENV)/.ready

# Python keeps what it compiled: without, each process that a test starts compiles all modules again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-laws test-whole quick check fix lock backends frameworks release clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

$(SERVER): requirements/server.txt requirements/build.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "blamespan needs Python 3.11 or newer; say which with: make PYTHON=python3.12 …"; exit 1; }
	@echo "Setting up $(VENV) from the pinned set in requirements/server.txt (once, under a minute) …"
	@tools/environment.sh $(PYTHON) $(VENV) requirements/server.txt requirements/build.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(READY): $(SERVER) requirements/dev.txt
	@echo "Adding what the tests need, from requirements/dev.txt (once, under a minute) …"
	@tools/environment.sh $(PYTHON) $(VENV) requirements/dev.txt
	@touch $@

demo: $(SERVER) ## play a failing multi-agent run through the whole line and see who broke it: 10 seconds
	@$(BIN)/blamespan demo

# What a test needs: nothing but Python here; below, services that are started and killed, real backends, and the lab.
PLAIN := tests/unit tests/property tests/contract tests/docs tests/security tests/web
WHOLE := tests/e2e tests/deploy tests/backends tests/frameworks tests/lab
# Each command prints its slowest tests and leaves its results, test by test, in dist/junit.
PYTEST := $(BIN)/python -m pytest --durations=40
RESULTS = --junitxml=dist/junit/$@.xml
# A test of seconds that hangs fails, or where no signal reaches it ends its process and prints where each thread is.
HANGS := --timeout=300 -o faulthandler_timeout=330 -o faulthandler_exit_on_timeout=true

test: $(READY) ## the tests that need nothing but Python, on all cores: about 4 minutes on two
	@echo "Running the tests on all cores (about 4 minutes on two) …"
	@$(PYTEST) $(RESULTS) $(HANGS) -n auto --dist worksteal -m "not whole" $(PLAIN)

test-laws: $(READY) ## the tests of laws, with all examples that Hypothesis makes
	@$(PYTEST) $(RESULTS) -n auto --dist worksteal -m "hypothesis and not whole" --hypothesis-profile=thorough $(PLAIN)

test-whole: $(READY) ## the end-to-end tests, also with real backends, four files at a time: about 30 minutes
	@$(PYTEST) $(RESULTS) -n 4 --dist loadfile --no-loadscope-reorder -m whole --hypothesis-profile=thorough \
		$(WHOLE) $(PLAIN)

quick: check ## lint, types, layers, unit and property tests on all cores: what to run before each commit
	@$(PYTEST) $(RESULTS) -q -n auto --dist worksteal -m "not whole" --randomly-seed=default --hypothesis-seed=$$(date +%s) \
		tests/unit tests/property

check: $(READY) ## lint, format, types, layers
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

fix: $(READY) ## format the code, fix lint findings, regenerate generated files
	@$(BIN)/python -m tools.registry
	@$(BIN)/python -m tools.references.settings_reference
	@$(BIN)/python -m tools.references.files_reference
	@$(BIN)/python -m tools.support_page
	@$(BIN)/python -m tools.references.cli_reference
	@$(BIN)/python -m tools.references.api_reference
	@$(BIN)/python -m tools.references.python_reference
	@$(BIN)/python -m tools.references.metrics_reference
	@$(BIN)/python -m tools.references.mcp_session
	@$(BIN)/python -m tools.monitoring.alert_rules
	@$(BIN)/python -m tools.monitoring.dashboards
	@$(BIN)/python -m tools.monitoring.grafana_alerts
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

backends: $(READY) ## build a real OpenTelemetry Collector and Jaeger for the e2e suite (needs go)
	@$(BIN)/python -m tests.backends.install all

frameworks: $(READY) ## install the agent frameworks that the suite plays live, each in its own environment
	@$(BIN)/python -m tests.frameworks.install live

RELEASE := dist/release
release: $(READY) ## wheel, sdist, image recipe, bill of materials, provenance, audit in dist/release; VERSION=X.Y.Z writes the version
	@rm -rf $(RELEASE) dist/tools
	@tools/environment.sh $(PYTHON) dist/tools requirements/audit.txt
	@PATH="$(CURDIR)/dist/tools/bin:$$PATH" $(BIN)/python -m tools.release $(RELEASE) $(if $(VERSION),--version $(VERSION))

PIN := uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate --upgrade
LOCK := $(PIN) pyproject.toml

lock: ## renew the pinned sets (needs uv)
	$(LOCK) --extra all --extra postgres --extra kafka --extra notify --extra mcp --extra ranker --extra history --group dev -o requirements/dev.txt
	(echo "# The tested versions, for \`pip install -c requirements/constraints.txt '.[all]'\`: written by \`make lock\`."; \
		sed -n 's/^\([A-Za-z0-9].*[^ ]\) *\\$$/\1/p' requirements/dev.txt) >requirements/constraints.txt
	$(LOCK) --extra server -c requirements/dev.txt -o requirements/server.txt
	$(LOCK) --extra all --extra postgres --extra kafka --extra notify -c requirements/dev.txt -o requirements/image.txt
	$(PIN) --group build -c requirements/dev.txt -o requirements/build.txt
	for group in docs audit installer; do $(PIN) --group $$group -o requirements/$$group.txt; done

clean: ## remove what the build and the tests left
	rm -rf $(VENV) dist/site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis dist
