# What a user or developer types. The work is done by the scripts named here; see `make help`.

VENV := .venv
UV ?= uv

.DEFAULT_GOAL := help
.PHONY: help setup serve test bench check format lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo 'Variables: PORT=8484  ARGS="…" (for serve, test, bench)  APPLIANCE_CUDA=0|1 (default: if a GPU is found)  PYTHON=…'

setup: ## make .venv with the locked dependencies
	@sh packaging/setup.sh

serve: setup ## start the daemon in the foreground (first time: a few minutes to compile llama.cpp)
	@$(VENV)/bin/appliance pull --configured
	@exec $(VENV)/bin/appliance serve $(if $(PORT),--port $(PORT)) $(ARGS)

test: ## run all tests
	@sh packaging/setup.sh test
	@$(VENV)/bin/appliance pull smollm2-135m-instruct all-minilm-l6-v2
	@$(VENV)/bin/python -m pytest $(ARGS)

bench: ## measure against other servers; prints a table of ratios
	@sh packaging/setup.sh bench
	@$(VENV)/bin/appliance pull smollm2-135m-instruct all-minilm-l6-v2
	@$(VENV)/bin/python -m tests.bench $(ARGS)
	@$(if $(ARGS),,$(VENV)/bin/python -m tests.bench.cache)
	@$(if $(ARGS),,$(VENV)/bin/python -m tests.bench.overload --seeds 100)
	@$(if $(ARGS),,$(VENV)/bin/python -m tests.bench.overload --real --seeds 1 --step-s 30)

check: ## format, lint, types, layers
	@sh packaging/setup.sh test
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

format: ## put the code into its standard form
	@sh packaging/setup.sh test
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

# Hashed, for every platform, and without the address of the registry that they were made from. The three
# requirements locks are complete each, and agree: the others are made within the bounds of the first.
COMPILE := $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	--no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock'

lock: ## take the newest dependencies into the lock files (needs uv)
	$(COMPILE) --upgrade pyproject.toml --extra cpu -o requirements.lock
	$(COMPILE) --upgrade pyproject.toml --extra cpu --extra dev -c requirements.lock -o requirements-test.lock
	$(COMPILE) --upgrade pyproject.toml --extra cpu --extra bench -c requirements.lock -o requirements-bench.lock
	$(COMPILE) --upgrade packaging/build.in -o packaging/build.lock
	$(COMPILE) --upgrade packaging/pip.in -o packaging/pip.lock

clean: ## remove what was built here (the compiled llama.cpp stays in ~/.cache/appliance)
	rm -rf $(VENV) .build .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
