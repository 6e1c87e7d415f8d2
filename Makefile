# Everturn: commands; run `make` to list them. They need a POSIX shell and Python 3.11 or newer; those for containers also need
# a container engine and Compose, and those for the browser need Chromium.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
SETUP = $(if $(PYTHON),$(PYTHON) -I deploy/local/setup_environment.py,$(error Everturn needs Python 3.11 or newer))
LOCAL := $(BIN)/python -P -m everturn_local
SOURCES := libs services clients deploy bundles tests migrations bench

.DEFAULT_GOAL := help
.PHONY: help setup coding-agents run fuzz test browser pictures chaos failover load check fmt migrate operate models doctor clean lock bench bench-peers images up down logs
.PHONY: compose-test

help: ## List the commands
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Create the environments from the lock files, unless they are up to date
	@$(SETUP)

coding-agents: ## Install coding agents for the sandbox of `make run`: Claude Code, opencode and claude-code-acp, 1.2 GB
	@$(SETUP) --coding-agents

run: setup ## Start the whole platform on this machine: PORT=8080 EVERTURN_HOME=.everturn; set an API key such as ANTHROPIC_API_KEY for a real model
	@exec $(LOCAL) run

images: setup ## Build the container images; ONLY=runs or services builds only those
	@$(LOCAL) images --images "$(or $(ONLY),all)"

up: setup ## Start the platform as containers and wait until it is ready: PORT=8080 WORKERS=2 HOST=127.0.0.1 S3=1
	@$(LOCAL) up $(if $(LIMIT_S),--limit-s $(LIMIT_S))

down: setup ## Stop and remove the containers; VOLUMES=1 also deletes the data, after a confirmation (YES=1 skips it)
	@$(LOCAL) down $(if $(VOLUMES),--volumes) $(if $(YES),--yes)

logs: setup ## Follow the logs of the containers; SERVICE=ingress shows only that service
	@$(LOCAL) logs --services "$(SERVICE)"

test: setup ## Run the tests in parallel groups; ALL=1 adds browser and compose; SLOW=1 adds those that take long; TESTS=tests/unit ARGS='-k name -x' select some
	@$(if $(strip $(TESTS)$(ARGS)),$(BIN)/pytest -q --durations=10 $(ARGS) $(TESTS),exec env PYTHONPATH=tests/support $(BIN)/python -P -m suite $(if $(ALL),--all) $(if $(LIMIT_S),--limit-s $(LIMIT_S)) $(if $(MAX_FLAKY),--max-flaky $(MAX_FLAKY)))

compose-test: setup ## Start the platform as `make up` does, but without a registry, and run a turn; takes minutes
	@$(BIN)/pytest -q --durations=5 $(ARGS) tests/compose

browser: setup ## Test the web client in a real Chromium against the whole platform; CHROMIUM is the path of the browser
	@LONG_TASK_MS=$(or $(LONG_TASK_MS),inf) $(BIN)/pytest -q -s --durations=5 $(ARGS) tests/browser

pictures: setup ## Retake the README's screenshots in a real Chromium, into docs/images
	@$(BIN)/pytest -q $(ARGS) tests/browser/pictures.py

chaos: setup ## Inject faults from random schedules while BUSY=2 other processes keep the machine busy; SEEDS=50 runs 50 schedules, SEEDS=7,19 repeats these seeds
	@CHAOS_SEEDS="$(or $(SEEDS),50)" CHAOS_BUSY="$(or $(BUSY),2)" $(BIN)/pytest -q -s $(ARGS) tests/chaos/test_schedules.py

load: setup ## Check that 1,000 streams and 200 sockets get the same ordered events, and that 1,000 streams survive a killed ingress
	@FOLLOWERS="$(or $(FOLLOWERS),1000/200)" $(BIN)/pytest -q -s $(ARGS) tests/integration/ingress/sockets/test_many_followers.py
	@RETURNING="$(or $(RETURNING),1000)" $(BIN)/pytest -q -s $(ARGS) tests/chaos/test_streams.py -k killed_ingress

failover: setup ## Make servers fail over, be away or have a full disk while TURNS=200 turns run, at moments chosen by SEED=1; then upgrade from the commit before the newest migration, or from PREVIOUS=<commit>
	@SLOW=1 TURNS="$(or $(TURNS),200)" SEED="$(or $(SEED),1)" PREVIOUS="$(PREVIOUS)" $(BIN)/pytest -q -s $(ARGS) tests/chaos/test_failover.py \
		tests/chaos/test_outages.py tests/chaos/test_full_disks.py tests/chaos/test_upgrade.py

check: setup ## Check lint, format, types, import layers and architecture rules, including the web client's
	@failed=; types=$$(mktemp); web=$$(mktemp); $(BIN)/pyright --warnings >"$$types" 2>&1 & pyright=$$!; \
	$(LOCAL) web --only check >"$$web" 2>&1 & client=$$!; \
	trap 'kill $$pyright $$client 2>/dev/null; rm -f "$$types" "$$web"' EXIT; trap 'cat "$$types" "$$web"; exit 130' INT TERM; \
	for gate in "ruff check $(SOURCES)" "ruff format --check --quiet $(SOURCES)" \
		"lint-imports --no-logo" "pytest -q tests/architecture"; do \
		echo "check: $${gate%% *}"; $(BIN)/$$gate || failed="$$failed $${gate%% *}"; \
	done; echo "check: pyright"; wait $$pyright || failed="$$failed pyright"; cat "$$types"; \
	echo "check: web client"; wait $$client || failed="$$failed web-client"; cat "$$web"; [ -z "$$failed" ] || { echo "check failed:$$failed"; exit 1; }

fmt: setup ## Format the sources and apply the linter's fixes
	@$(BIN)/ruff format $(SOURCES)
	@$(BIN)/ruff check --fix $(SOURCES)

migrate: setup ## Run the pending migrations on the local database
	@$(LOCAL) migrate

operate: setup ## Run an operator command against what `make run` started, while it runs: DO="keys list --tenant default"; without DO, list the commands
	@$(LOCAL) operate $(DO)

models: setup ## Check a model with twelve small tasks: DO="check openai:<name>", or DO="check" for the model that `make run` would use; DO="list" lists the models
	@$(LOCAL) models $(DO)

doctor: setup ## Check what works on this machine and say how to fix the rest
	@$(LOCAL) doctor

fuzz: setup ## Fuzz the API from its OpenAPI document; EXAMPLES=200 SEED=1 takes ten minutes on two busy cores; stops after LIMIT_S=3600
	@FUZZ_EXAMPLES=$(or $(EXAMPLES),200) FUZZ_SEED=$(or $(SEED),1) FUZZ_LIMIT_S=$(or $(LIMIT_S),3600) FUZZ_PHASES=examples,coverage,fuzzing \
		$(BIN)/pytest -q -s tests/integration/ingress/test_app.py -k fuzzed

bench: setup ## Run the benchmarks; each prints a ratio and its goal
	@missed=; for script in $(filter-out bench/profile.py bench/sizing.py bench/soak.py,$(wildcard bench/*.py)); do PYTHONPATH=tests/support $(BIN)/python -P "$$script" || missed="$$missed $$script"; done; \
	[ -z "$$missed" ] || { echo "goals missed:$$missed"; exit 1; }

bench-peers: setup ## Run the benchmarks beside Chainlit, langgraph and pydantic-ai, which it installs in .bench-peers
	@for peer in chainlit langgraph pydantic-ai; do \
		[ -e .bench-peers/$$peer/installed ] && continue; \
		$(PYTHON) -m venv .bench-peers/$$peer && .bench-peers/$$peer/bin/pip install -q -r bench/peers/$$peer.txt \
			&& touch .bench-peers/$$peer/installed || exit 1; \
	done
	@missed=; for script in bench/whole_turn.py bench/round_overhead.py; do BENCH_PEERS="$$PWD/.bench-peers" PYTHONPATH=tests/support $(BIN)/python -P "$$script" || missed="$$missed $$script"; done; \
	[ -z "$$missed" ] || { echo "goals missed:$$missed"; exit 1; }

lock: ## Resolve the dependencies again and write both lock files
	@$(SETUP) --lock

clean: ## Delete caches and, after a confirmation (YES=1 skips it), all local conversations and files
	@[ ! -x $(BIN)/python ] || $(LOCAL) clean $(if $(YES),--yes)
	@rm -rf .pytest_cache .ruff_cache .import_linter_cache .hypothesis dist build clients/web/node_modules
	@find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +
