# Everything runs in a virtual environment of its own, made on first use.
PYTHON ?= python3.11
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
N      ?= 1000
SEED   ?= 1

.PHONY: install demo test test-slow lint type docs docs-check bench bench-full torture check fmt clean

install: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip --constraint constraints.txt
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable . --group dev
	touch $@

demo: $(READY)
	rm -rf demo && mkdir demo
	$(BIN)/python examples/make_tickets.py 4000 > demo/tickets.jsonl
	$(BIN)/batchctl --state demo/state.db run demo/tickets.jsonl --simulate --faults examples/faults.json \
		--provider anthropic --model claude-sonnet-4-5 --prompt examples/classify.txt \
		--schema examples/reply.schema.json --max-tokens 200 --max-requests 700 \
		--name demo --out demo/out; code=$$?; [ $$code -eq 0 ] || [ $$code -eq 3 ]
	$(BIN)/batchctl --state demo/state.db show demo
	head -n 2 demo/out/results.jsonl

test: $(READY)
	$(BIN)/python -m pytest -n 2 -m "not slow" $(ARGS)

test-slow: $(READY)
	$(BIN)/python -m pytest -n 2 -m slow $(ARGS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/codespell batchctl tests docs state examples benchmarks README.md

type: $(READY)
	$(BIN)/mypy

fmt: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY)
	$(BIN)/cog -r -P -I docs README.md docs/*.md

docs-check: $(READY)
	$(BIN)/cog --check -P -I docs README.md docs/*.md

torture: $(READY)
	$(BIN)/python -m tests.torture -n $(N) --seed $(SEED)

bench: $(READY)
	$(BIN)/python -m benchmarks $(ARGS)

bench-full: $(READY)
	$(BIN)/python -m benchmarks --full $(ARGS)

check: lint type test docs-check

clean:
	rm -rf $(VENV) demo build dist
