# Everything runs in .venv, which make creates and fills from requirements.lock.
# Needs only python3 (>= 3.11) with venv.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.filled

.PHONY: demo test check bench format lock screenshots wheel clean
.DEFAULT_GOAL := help

help:  ## show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(STAMP)

demo: $(STAMP)  ## the whole product on a simulated fleet: http://127.0.0.1:8050
	$(BIN)/idlewatt demo $(ARGS)

test: $(STAMP)  ## all tests but the slow ones, with branch coverage
	COVERAGE_CORE=ctrace $(BIN)/python -m pytest -m "not slow" --cov --cov-report=term $(ARGS)

check: $(STAMP)  ## format, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)  ## rewrite the sources in the one format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)  ## measurements; see benchmarks/
	@for file in benchmarks/*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

screenshots: $(STAMP)  ## the pictures of the README, from a real demo
	$(BIN)/python docs/make_screenshots.py

wheel: $(STAMP)  ## build the wheel into dist/
	$(BIN)/python -m hatchling build -t wheel

lock: $(STAMP)  ## resolve pyproject.toml into requirements.lock
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-header \
	    --python-version 3.11 --extra server --extra sim --group dev pyproject.toml -o requirements.lock

clean:  ## remove what make made
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage*
