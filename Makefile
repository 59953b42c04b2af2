# The five things to do with a checkout of Sapwood; `make` alone lists them.
# PYTHON=python3.12 make demo   uses that interpreter for the virtual environment.
SHELL := /bin/sh
.DEFAULT_GOAL := _help
.PHONY: demo test quick check bench docs torture coverage lowest _help

SEEDS := 100000
FRAMES := 1000000
MUTANTS := 150
KILLS := 300
MUTANT_SEED := $(shell date +%j)
MAKEFLAGS += --no-builtin-rules

VENV := .venv
BIN := $(VENV)/bin
# Two workers more than there are cores, as a quarter of the time tests wait. Without threads that each process which
# imports numpy would start, and which look for work for a while.
WORKERS := $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n < 3 ? n + 2 : 4)))
PYTEST := env -u PYTHONDONTWRITEBYTECODE OPENBLAS_NUM_THREADS=1 \
    $(BIN)/pytest -n $(WORKERS) --dist worksteal
export PYTHON

demo: $(VENV)/with-examples ## quantise the colours of a photograph on four agents
	$(BIN)/sapwood run examples/quantize --agents 4 -p colours=16 --output quantized.png

test: $(VENV)/with-test ## run the unit, integration and system tests
	$(BIN)/python -m compileall -q src extras
	$(PYTEST)

# The tests to repeat while a change is written, without those that CONTRIBUTING.md calls slow.
# As many workers as cores, because these tests hardly wait, and each worker imports all of them.
quick: $(VENV)/with-test ## run the unit tests and the simulations that are fast
	$(PYTEST) -n auto tests/unit tests/simulation -m "not nightly and not slow"

check: $(VENV)/with-check ## check format, lint, types, layers, spelling and prose
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/python scripts/verify_types.py
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(BIN)/python scripts/prose.py
	$(BIN)/towncrier build --draft --version next >/dev/null

bench: $(VENV)/with-bench ## run every benchmark at its full size
	@set -e; for script in $$(grep -l __main__ benchmarks/*.py | grep -v -e /tables.py -e /plan_topology.py); do \
	    echo "$$script" >&2; $(BIN)/python "$$script"; done

# Nightly: as many seeds of the simulator as time allows (SEEDS=…); not one of the five.
# First a million hostile frames to places of all kinds (FRAMES=…).
# Then real kills of all kinds of processes over network namespaces (KILLS=…).
# Then the tests that `make test` leaves out: long matrices of compilers, other examples of laws.
# Last, mistakes made on purpose in the communication stack (MUTANTS=…, MUTANT_SEED=…): six in ten are to be found, and nine in ten is the aim.
torture: $(VENV)/with-torture
	$(BIN)/python -m sapwood_simulation.fuzz --frames $(FRAMES)
	$(BIN)/python -m sapwood_simulation.delegation_simulation --seeds $(SEEDS)
	$(BIN)/python -m sapwood_simulation --seeds $(SEEDS) --agents 40 --fanout 3 --waves 6 --pipelined 3 \
	    --crash 0.003 --pause 0.001 --zygote 0.0002 --sever 0.01 --split 0.1
	$(BIN)/python -m sapwood_simulation --what pieces --seeds $(SEEDS) --agents 20 --fanout 3 --waves 4 --pipelined 2 --split 0.1 \
	    --crash 0.0003 --pause 0.0001 --zygote 0.00003 --sever 0.001 --clog 0.0002
	$(BIN)/python -m sapwood_simulation --what streams --sync time-out --late next --seeds $(SEEDS) \
	    --agents 17 --fanout 2 --waves 8 --crash 0.001 --pause 0.0005 --zygote 0.0001 --sever 0.003 \
	    --clog 0.001 --partition 0.0005
	$(BIN)/python -m sapwood_simulation --what streams --sync time-out --seconds 3 --on-loss partial \
	    --seeds $(SEEDS) --agents 17 --fanout 2 --waves 6 --crash 0.001 --pause 0.0005 --sever 0.003 \
	    --clog 0.001 --split 0.1
	$(BIN)/python -m sapwood_simulation --what membership --seeds $(SEEDS) --agents 14 --fanout 3 --waves 8 --pipelined 3 --split 0.1 \
	    --crash 0.002 --pause 0.0005 --zygote 0.0001 --sever 0.005 --clog 0.001 --partition 0.0003
	$(BIN)/python -m sapwood_simulation --what nodes --seeds $(SEEDS) --agents 9 --waves 4 --split 0.1 \
	    --crash 0.001 --pause 0.0005 --sever 0.005 --clog 0.001 --partition 0.001
	$(BIN)/python -m sapwood_simulation --what sessions --seeds $(SEEDS) --agents 6 --fanout 2 --waves 2 --split 0.1 \
	    --crash 0.001 --pause 0.0003 --zygote 0.0001 --sever 0.002 --clog 0.0005
	$(BIN)/python -m sapwood_simulation --what runs --seeds $(SEEDS) --agents 6 --fanout 2 --waves 3 --split 0.1 \
	    --crash 0.001 --pause 0.0003 --zygote 0.0001 --sever 0.002 --clog 0.0005
	@set -e; for what in streams groups messages; do \
	    $(BIN)/python -m sapwood_simulation --what $$what --seeds $(SEEDS) --agents 40 --fanout 3 --waves 4 \
	    --crash 0.0005 --pause 0.0002 --zygote 0.0001 --sever 0.01 --clog 0.0005 --split 0.1 \
	    --partition 0.0002 --drop 0.01 --duplicate 0.01 --reorder 0.01; done
	$(BIN)/python benchmarks/kills.py --machines 4 --until $(KILLS) --stops 0.15 --seed $(MUTANT_SEED)
	$(PYTEST) -m nightly
	$(PYTEST) --hypothesis-profile=nightly tests/unit
	$(BIN)/python tests/mutation/mutate.py --sample $(MUTANTS) --seed $(MUTANT_SEED) --floor 0.6

# The unit tests with the lowest versions of what Sapwood needs, in a separate environment; not one of the five.
# Warnings of old versions about newer ones are no failures.
LOWEST := build/lowest
lowest: $(VENV)/with-test
	$(BIN)/python -m venv --clear $(LOWEST)
	$(BIN)/python scripts/lowest_versions.py >$(LOWEST)/constraints.txt
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check --constraint $(LOWEST)/constraints.txt \
	    --editable ".[server,watch,cuda,examples,lan,otel,parquet,sketches,url,uv]" \
	    $(addprefix --editable ,$(patsubst %/pyproject.toml,%,$(wildcard extras/*/pyproject.toml))) \
	    hatchling httpx hypothesis pandas polars pytest pytest-timeout pytest-xdist trustme uvloop
	env OPENBLAS_NUM_THREADS=1 $(LOWEST)/bin/python -m pytest -n $(WORKERS) -o filterwarnings=default \
	    -m "not nightly and not slow" tests/unit tests/integration/test_extras.py

# How much of the code the tests of the client's process run; below the floor of pyproject.toml it fails.
coverage: $(VENV)/with-coverage
	$(PYTEST) --cov --cov-report=term:skip-covered

docs: $(VENV)/with-docs ## build the documentation into docs/_build; a warning is an error
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

# One stamp per extra: older than one of these files means install again.
$(VENV)/with-%: pyproject.toml $(wildcard extras/*/pyproject.toml) scripts/prepare.sh hatch_build.py src/sapwood/fastpath/native/fastpath.c
	@sh scripts/prepare.sh $(VENV) $*
	@touch $@

_help:
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile
