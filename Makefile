# Every target builds .venv by itself when it is missing or out of date.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

NEWEST := .venv-newest
WORKERS ?= 2
MESSAGES ?= 200000
SEED ?= 1
PARALLEL := -n $(WORKERS) --dist loadgroup --no-loadscope-reorder
FAST := -m 'not processes and not slow'

.PHONY: demo test test-fast test-newest coverage lint hooks install bench bench-scale bench-flower decoding scale audit attack drill fuzz hospital consortium clean

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt constraints-torch.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: install ## FL-STD-DP and FL-CS-DP on the bundled sample, with a report
	$(BIN)/lowkey demo

test: install ## all tests
	$(BIN)/python -m pytest $(PARALLEL)

test-fast: install ## all but those that take long or start servers
	$(BIN)/python -m pytest $(PARALLEL) $(FAST)

test-newest: ## the fast tests with the newest releases of everything but torch and Flower
	test -d $(NEWEST) || $(PYTHON) -m venv $(NEWEST)
	$(NEWEST)/bin/python -m pip install -q --disable-pip-version-check --upgrade --upgrade-strategy eager \
		-c constraints-torch.txt -e '.[test]'
	$(NEWEST)/bin/python -m pytest $(PARALLEL) $(FAST)

coverage: install ## which lines and branches the tests reach, in the terminal and under htmlcov/
	$(BIN)/python -m pytest $(PARALLEL) --cov --cov-report=term --cov-report=html

lint: install ## style and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

hooks: install ## style and types at every commit
	$(BIN)/pre-commit install

bench: install ## speed, as ratios measured in one run; PFL=PYTHON of an environment with pfl[pytorch] adds pfl
	$(BIN)/python -m benchmarks.solvers
	$(BIN)/python -m benchmarks.round $(if $(PFL),--pfl $(PFL))
	$(BIN)/python -m benchmarks.small_round $(if $(PFL),--pfl $(PFL))
	$(BIN)/python -m benchmarks.noise
	$(BIN)/python -m benchmarks.secagg
	$(BIN)/python -m benchmarks.proofs

bench-scale: install ## what a round costs from a thousand clients to a million; two minutes
	$(BIN)/python -m benchmarks.growth --out results/growth.json --figure docs/images/growth.png

bench-flower: install ## what the Flower runtime costs per round, and bytes on the wire
	$(BIN)/python -m benchmarks.flower --json results/flower.json

drill: install ## faults on real Flower processes; takes about half an hour
	$(BIN)/python tools/drill.py --write docs/drill.md

fuzz: install ## damaged messages and files for every parser; MESSAGES=2000000 takes some minutes
	$(BIN)/python -m tests.fuzz --messages $(MESSAGES) --seed $(SEED)

audit: install ## claimed ε beside what an attacker achieves, through the whole pipeline
	$(BIN)/lowkey audit

attack: install ## a lying server with random strategies against secure aggregation, for two minutes
	$(BIN)/python -m tests.attacks.lying_server --seconds 60
	$(BIN)/python -m tests.attacks.lying_server --seconds 60 --random-graphs

decoding: install ## which decoder recovers most: tables and figure of docs/decoding.md
	$(BIN)/python -m benchmarks.decoding

scale: install ## memory and time of decoding models of up to 100 million parameters
	$(BIN)/python -m benchmarks.scale

hospital: install ## memory and round time of the mortality task at the paper's scale, on synthetic admissions
	$(BIN)/python -m benchmarks.hospital

consortium: install ## what ε ≤ 1 costs a consortium of hospitals; needs LOWKEY_HOSPITAL_DATA
	$(BIN)/python examples/consortium.py

clean:
	rm -rf $(VENV) $(NEWEST) build dist htmlcov lowkey-demo
