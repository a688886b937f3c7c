# `make demo` and `make test` are all the set-up there is.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test pytest check bench test-integrations clean

demo: .venv/installed
	$(BIN)/foretrace demo --out demo-out

# The checks beside the tests: pyright works on one core. In the order of the folders the last files are short ones. The
# tests start hundreds of processes: without bytecode, each would compile the library anew. The integrations would be
# deselected, but only after torch and the like were imported.
test: .venv/dev
	$(MAKE) --no-print-directory -j 2 check pytest

pytest: .venv/dev
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder -m "not integration and not slow" \
		--ignore tests/integrations

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

# Heavy real parts: TRL's trainers on built datasets, and model servers, of which llama-server is compiled from source
# once and cached outside the tree (CONTRIBUTING.md); and Chromium, which opens the pages of `view`: its screenshots are
# kept in screenshots/.
test-integrations: .venv/trl .venv/servers .venv/verifiers .venv/atropos .venv/ray .venv/s3 .venv/browser
	FORETRACE_SCREENSHOTS=$${FORETRACE_SCREENSHOTS-screenshots} $(BIN)/python -m pytest -m "integration or slow" tests

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/installed: pyproject.toml | .venv/bin/python
	@echo "installing into .venv, a minute or two"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	touch $@

.venv/dev: pyproject.toml | .venv/bin/python
	@echo "installing into .venv, a minute or two"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	touch .venv/installed $@

.venv/trl: .venv/dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "torch==2.13.0"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev,trl]" "transformers[serving]" peft
	touch $@

.venv/servers: .venv/dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "gguf==0.19.0" "ollama==0.6.3"
	touch $@

.venv/verifiers: .venv/trl
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev,trl,verifiers]"
	touch $@

.venv/atropos: .venv/verifiers
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev,trl,verifiers,atropos]"
	touch $@

.venv/ray: .venv/atropos
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev,trl,verifiers,atropos,ray]"
	touch $@

.venv/s3: .venv/ray
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev,trl,verifiers,atropos,ray,s3]" "moto[server]>=5.1"
	touch $@

# Chromium is the system's: installed where that is allowed, else the tests of pages are skipped and say so, and the next
# run tries again.
.venv/browser: .venv/dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "playwright==1.65.2"
	if command -v chromium || command -v chromium-browser || command -v google-chrome || \
		{ apt-get update -qq && apt-get install -y --no-install-recommends chromium; }; then touch $@; \
	else echo "Chromium is not installed: the tests of pages will be skipped"; fi

clean:
	rm -rf .venv demo-out bench-out screenshots
