# `make demo` and `make test` are the only set-up you need.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
UV := $(BIN)/uv pip install --quiet --python $(BIN)/python

.PHONY: demo docs test pytest check bench test-integrations clean

demo: .venv/installed
	$(BIN)/foretrace demo --out demo-out

# A site from docs/ in site/; a link that leads nowhere is an error.
docs: .venv/docs
	$(BIN)/mkdocs build --strict

# The checks beside the tests: pyright works on one core. In the order of the folders the last files are short ones. The
# tests start hundreds of processes: without bytecode, each would compile the library anew. The integrations would be
# deselected, but only after torch and the like were imported. What fails runs once again, alone: a busy machine may have
# been too slow for a test of processes.
QUICK := -m "not integration and not slow" --ignore tests/integrations --hypothesis-profile quick
HEAVY := -m "integration or slow or hypothesis" tests
AGAIN := --last-failed --last-failed-no-failures none

test: .venv/dev
	$(MAKE) --no-print-directory -j 2 check pytest

pytest: export PYTHONDONTWRITEBYTECODE =
pytest: .venv/dev
	$(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder $(QUICK) || $(BIN)/python -m pytest $(AGAIN) $(QUICK)

check: .venv/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright

# A user's commands find the library compiled; without bytecode, each process would compile it anew and be charged for it.
bench: export PYTHONDONTWRITEBYTECODE =
bench: .venv/dev
	$(BIN)/python benchmarks/bench_import.py
	$(BIN)/python benchmarks/bench_build.py
	$(BIN)/python benchmarks/bench_sandbox.py
	$(BIN)/python benchmarks/bench_generate.py
	$(BIN)/python benchmarks/bench_atropos.py
	$(BIN)/python benchmarks/bench_view.py
	$(BIN)/python benchmarks/bench_predict.py
	$(BIN)/python benchmarks/bench_speculation.py --quick

# Heavy real parts: TRL's trainers on built datasets, and model servers, of which llama-server is compiled from source
# once and cached outside the tree (CONTRIBUTING.md); and Chromium, which opens the pages of `view`: its screenshots are
# kept in screenshots/. The libraries' modules are compiled once, and not anew by each process.
test-integrations: export PYTHONDONTWRITEBYTECODE =
test-integrations: export FORETRACE_SCREENSHOTS ?= screenshots
test-integrations: .venv/integrations .venv/harbor/installed .venv/inspect/installed .venv/browser
	$(BIN)/python -m pytest -n 3 --dist loadfile $(HEAVY) || $(BIN)/python -m pytest $(AGAIN) $(HEAVY)
	.venv/inspect/bin/python -m pytest -m integration tests/integrations/test_inspect_ai.py

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/installed: pyproject.toml | .venv/bin/python
	@echo "installing into .venv, a minute or two"
	$(PIP) -e .
	touch $@

# uv resolves the extras in seconds where pip takes minutes.
.venv/dev: pyproject.toml | .venv/bin/python
	@echo "installing into .venv, half a minute"
	$(PIP) uv
	$(UV) -e ".[dev]"
	touch .venv/installed $@

.venv/docs: .venv/dev
	$(UV) -e ".[dev,docs]"
	touch $@

# torch by pip, which also looks in local folders of wheels (find-links), where the build for CPUs may lie.
.venv/integrations: .venv/dev
	@echo "installing torch, Ray and the trainers' libraries into .venv, a minute or two"
	$(PIP) "torch==2.13.0"
	$(UV) -e ".[dev,trl,verifiers,atropos,ray,s3]" "transformers[serving]" peft "gguf==0.19.0" "ollama==0.6.3" \
		"moto[server]>=5.1" "playwright==1.65.2" "teich>=0.3"
	touch $@

# Harbor needs Python 3.12, so it has an environment of its own: 321 MB. Where there is no such Python, its tests are
# skipped and say so, and the next run tries again.
HARBOR_PYTHON ?= $(firstword $(wildcard $(HOME)/.pyenv/versions/3.12*/bin/python) 3.12)
.venv/harbor/installed: .venv/dev
	if $(BIN)/uv venv --quiet --clear --no-python-downloads --python $(HARBOR_PYTHON) .venv/harbor; then \
		$(BIN)/uv pip install --quiet --python .venv/harbor/bin/python "harbor==0.26.*" && touch $@; \
	else echo "no Python 3.12 (HARBOR_PYTHON=PATH names one): the tests with Harbor will be skipped"; fi

# inspect_ai needs an fsspec with which the datasets library cannot read from S3: an environment of its own.
.venv/inspect/installed: .venv/dev
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python .venv/inspect
	$(BIN)/uv pip install --quiet --python .venv/inspect/bin/python -e ".[dev]" "inspect-ai>=0.3.285"
	touch $@

# Chromium is the system's: installed where that is allowed, else the tests of pages are skipped and say so, and the next
# run tries again.
.venv/browser: .venv/integrations
	if command -v chromium || command -v chromium-browser || command -v google-chrome || \
		{ apt-get update -qq && apt-get install -y --no-install-recommends chromium; }; then touch $@; \
	else echo "Chromium is not installed: the tests of pages will be skipped"; fi

clean:
	rm -rf .venv demo-out bench-out screenshots site
