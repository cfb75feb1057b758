# Headstart: everything a developer or a newcomer runs. `make` alone lists it.
PYTHON ?= python3
BIN := .venv/bin

.DEFAULT_GOAL := help

help:  ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

.venv/.ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

setup: .venv/.ready  ## create .venv and install the package and its tools

demo: setup  ## pretrain, fine-tune and compare on public film reviews (about five minutes)
	$(BIN)/headstart demo

test: setup  ## the fast tests (about eight minutes)
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder

nightly: setup  ## the checks that take hours (ONLY="slow browser": these; AGAIN=1: those that passed too), write docs/nightly.md
	$(BIN)/python -m tests.nightly $(ONLY) $(if $(AGAIN),--again)

browser:  ## install Chromium, which the tests of pages use (Debian, Ubuntu)
	command -v chromium || (apt-get update -qq && apt-get install -y -qq chromium)

test-all: setup  ## every test, slow ones and downloads too
	$(BIN)/python -m pytest -m ''

check: setup  ## style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup  ## let ruff mend style and layout
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup  ## measure speed against named peers; writes benchmarks/
	$(BIN)/python -m benchmarks

bench-check: setup  ## measure speed, and name the ratios that fell by more than the noise of the last table
	$(BIN)/python -m benchmarks.check

docs: setup  ## build the pages of docs/ into build/site; a broken link is an error
	$(BIN)/mkdocs build --strict

package: setup  ## build the sdist and the wheel into dist/, and check them
	rm -rf dist && $(BIN)/python -m build && $(BIN)/twine check --strict dist/*

LABS := book-reviews small-gpt pretrained-gpt pig-latin arithmetic captions
DATA ?= data

labs: setup  ## run the six labs (hours; DATA=DIR holds their data), write docs/results.md
	for lab in $(LABS); do $(BIN)/headstart lab $$lab --data $(DATA) --out runs/labs/$$lab || exit 1; done
	$(BIN)/headstart lab table $(LABS:%=runs/labs/%) > runs/labs/results.md && mv runs/labs/results.md docs/results.md

clean:  ## remove what the targets above made
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis runs/demo runs/demo-quick

.PHONY: help setup demo test nightly browser test-all check format bench bench-check docs package labs clean
