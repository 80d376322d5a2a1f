# Every verb sets up what it needs, inside this clone (.venv and target), and does nothing twice: each step leaves a
# stamp, and runs again only when what it was made from has changed. `make` alone lists the verbs.

PYTHON ?= python3
VENV   := .venv
# pyspark 3.5 and 4 cannot live in one environment.
OLDER  := .venv-spark35
BIN    := $(VENV)/bin
STAMP  := $(VENV)/stamps

# Debian packages that some tests use; `make system` installs the missing ones when it may.
SYSTEM_PACKAGES := gdb lldb tmux qemu-user openjdk-17-jre-headless gcc-aarch64-linux-gnu libc6-dev-arm64-cross

# Dependency groups of pyproject.toml. A group added there is added here once, and `make lock` pins it.
TEST_GROUPS  := test lint
HEAVY_GROUPS := heavy
GROUPS       := installer build $(TEST_GROUPS) $(HEAVY_GROUPS)

SHELL         := bash
.SHELLFLAGS   := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS     += --no-print-directory
.DELETE_ON_ERROR:
.SUFFIXES:

# Installers obey the pins also where maturin calls them, and never fetch an interpreter of their own.
export PYTHON VENV
export UV_CONSTRAINT            := $(CURDIR)/constraints.txt
export PIP_CONSTRAINT           := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export UV_PYTHON_DOWNLOADS      := never
export VIRTUAL_ENV              := $(CURDIR)/$(VENV)
# One interpreter for maturin, clippy and cargo test: PyO3 would build anew for each different one.
export PYO3_PYTHON              := $(CURDIR)/$(BIN)/python
unexport PYTHONPATH PYTHONHOME CONDA_PREFIX LASTWORDS

# uv where it installed, else pip. Read when a recipe runs: the venv stamp decides it.
UV      = $(wildcard $(BIN)/uv)
INSTALL = $(if $(UV),$(BIN)/uv pip install -q,$(BIN)/python -m pip install -q)
# Two makes at once must not write one venv together. (The name .lock in there is uv's own.)
LOCK   := $(if $(shell command -v flock),flock $(VENV)/make.lock)

RUST_SOURCES := $(shell find crates -name '*.rs' -o -name Cargo.toml -o -name build.rs) Cargo.toml Cargo.lock
NATIVE_INPUT := $(RUST_SOURCES) pyproject.toml $(wildcard lastwords.data/*/*)

##@ Start here

.PHONY: demo
demo: $(STAMP)/native  ## a few deaths, explained: the tour (no torch needed)
	@$(BIN)/lastwords demo

.PHONY: test
test: system cpython-tests $(STAMP)/native $(STAMP)/test $(STAMP)/heavy $(STAMP)/spark35  ## all Rust and Python tests, with torch and all other heavy parts
	@tools/test.sh $(PYTEST)

.PHONY: test-fast
test-fast: $(STAMP)/native $(STAMP)/test  ## the daily path: neither slow tests nor heavy dependencies
	@tools/test.sh -m "not slow and not heavy" $(PYTEST)

.PHONY: check
check: $(STAMP)/native $(STAMP)/test  ## lint, format, types, stubs, stale pages
	@$(MAKE) -k check-ruff check-format check-types check-stubs check-rustfmt check-clippy check-docs
	@echo "check: all clean"

##@ Work

.PHONY: setup
setup: system cpython-tests $(STAMP)/native $(STAMP)/test $(STAMP)/heavy $(STAMP)/spark35  ## everything the other verbs would install, and nothing else

.PHONY: native
native: $(STAMP)/native  ## the package and its native module in .venv, editable

.PHONY: format
format: $(STAMP)/test  ## rewrites Python and Rust files as `make check` wants them
	@$(BIN)/ruff check -q --fix-only . || true
	@$(BIN)/ruff format -q .
	@cargo fmt --all

.PHONY: docs
docs: $(STAMP)/native  ## writes the generated pages: causes, commands, JSON schema
	@$(BIN)/python tools/docs.py

.PHONY: bench
bench: $(STAMP)/native $(STAMP)/test $(STAMP)/heavy  ## all benchmarks, as ratios to a peer in the same run (BENCH="--quick startup")
	@$(BIN)/python -m bench $(BENCH)

.PHONY: fuzz
fuzz: $(STAMP)/native $(STAMP)/test  ## the tests that make up their own input, with input that nobody has seen yet (FUZZ=20: so many times)
	@for round in $$(seq $(or $(FUZZ),10)); do $(BIN)/python -m pytest -q -m hypothesis --hypothesis-profile=fuzz; done

.PHONY: soak
soak: $(STAMP)/native $(STAMP)/test  ## 200,000 tasks while workers are killed 2,000 times: no result may be lost (SOAK="--tasks 1000 --kills 10")
	@$(BIN)/python -m tests.survive.test_chaos $(SOAK)

.PHONY: soak-loader
soak-loader: $(STAMP)/native $(STAMP)/test $(STAMP)/heavy  ## an hour of DataLoader epochs, 5 kills a second: each the undisturbed one, and nothing grows (SOAK="--seconds 60")
	@$(BIN)/python -m tests.loader.test_soak $(SOAK)

.PHONY: zoo
zoo: $(STAMP)/native $(STAMP)/test $(STAMP)/heavy  ## every death of the zoo in every job; writes the table docs/zoo.md
	@$(BIN)/python tools/zoo_table.py

.PHONY: ground-truth
ground-truth: system $(STAMP)/native $(STAMP)/test  ## scan against some 200 packages on emulated CPUs (two hours; goes on where it was stopped); writes docs/scan-ground-truth.md
	@$(BIN)/python -m tests.prevent.ground_truth $(GROUND_TRUTH)

.PHONY: new-cause
new-cause: $(STAMP)/native  ## a new cause with its zoo case and near miss: make new-cause NAME=some-id
	@$(BIN)/python tools/new_cause.py "$(NAME)"

.PHONY: wheel
wheel: $(STAMP)/base  ## an abi3 wheel in dist/
	@tools/need.sh cargo cc
	@$(BIN)/maturin build --release --locked --out dist

.PHONY: lock
lock: $(STAMP)/venv  ## pins every dependency anew in constraints.txt (UPGRADE=1 also raises what is pinned)
	@test -x $(BIN)/uv || { echo "lastwords: make lock needs uv, and it could not be installed here" >&2; exit 2; }
	@UV_CONSTRAINT= $(BIN)/uv pip compile pyproject.toml -q --universal --python-version 3.10 $(GROUPS:%=--group %) \
		--no-header --no-annotate --no-emit-index-url $(if $(UPGRADE),--upgrade) -o constraints.txt >/dev/null
	@sed -i -E "s/ ; sys_platform == 'linux'$$//; s/ and sys_platform == 'linux'//g" constraints.txt

.PHONY: system
system:  ## the Debian packages some tests use, where we may install them
	@tools/system.sh $(SYSTEM_PACKAGES)

.PHONY: cpython-tests
cpython-tests: $(STAMP)/venv  ## CPython's own tests of process pools, where the interpreter came without them
	@tools/cpython_tests.sh $(BIN)/python $(VENV)/cpython-tests

.PHONY: clean
clean:  ## removes all that the verbs have made
	rm -rf $(VENV) $(OLDER) .venv-bench target dist build site .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -f src/lastwords/_native*.so

.PHONY: help
help:  ## this list
	@awk 'BEGIN { FS = ":.*##" } \
		/^##@/ { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z-]+:.*##/ { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# The parts of `make check`, each to be called alone too (pre-commit does).

.PHONY: check-ruff check-format check-types check-stubs check-rustfmt check-clippy check-docs
check-ruff: $(STAMP)/test
	$(BIN)/ruff check -q .
check-format: $(STAMP)/test
	$(BIN)/ruff format -q --check .
check-types: $(STAMP)/test
	$(BIN)/mypy
check-stubs: $(STAMP)/native $(STAMP)/test
	$(BIN)/python -m mypy.stubtest --allowlist tools/stubtest-allowlist.txt --ignore-unused-allowlist lastwords._native
check-rustfmt:
	@tools/need.sh cargo rustfmt
	cargo fmt --all --check
check-clippy: $(STAMP)/base
	@tools/need.sh cargo clippy
	cargo clippy -q --locked --workspace --all-targets -- -D warnings
check-docs: $(STAMP)/native
	$(BIN)/python tools/docs.py --check

# The set-up, step by step.

$(STAMP)/venv:
	@tools/need.sh python
	@echo "making $(VENV)"
	@$(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install -q uv || { echo "uv could not be installed: pip does its work, more slowly" >&2; \
		$(BIN)/python -m pip install -q pip; }
	@mkdir -p $(STAMP) && touch $@

$(STAMP)/base: $(STAMP)/venv pyproject.toml constraints.txt
	@$(LOCK) $(INSTALL) --group build
	@touch $@

$(STAMP)/test: $(STAMP)/venv pyproject.toml constraints.txt
	@$(LOCK) $(INSTALL) $(TEST_GROUPS:%=--group %)
	@touch $@

$(STAMP)/heavy: $(STAMP)/venv pyproject.toml constraints.txt
	@test -e $@ || tools/need.sh room
	@echo "installing $(HEAVY_GROUPS) dependencies (gigabytes the first time)"
	@$(LOCK) $(INSTALL) $(HEAVY_GROUPS:%=--group %)
	@touch $@

# For one test, and not worth a failure: where it cannot be had (its numpy has no wheels for Python 3.13), that skips.
$(STAMP)/spark35: $(STAMP)/venv constraints-spark35.txt
	@echo "making $(OLDER) (Spark 3.5)"
	@rm -rf $(OLDER) && $(PYTHON) -m venv $(OLDER)
	@UV_CONSTRAINT= PIP_CONSTRAINT= VIRTUAL_ENV=$(CURDIR)/$(OLDER) \
		$(if $(UV),$(UV) pip install -q,$(OLDER)/bin/python -m pip install -q) -r constraints-spark35.txt || \
		{ echo "Spark 3.5 could not be installed: its test is left out" >&2; rm -rf $(OLDER); }
	@touch $@

$(STAMP)/native: $(STAMP)/base $(NATIVE_INPUT)
	@tools/need.sh cargo cc
	@echo "building lastwords"
	@mkdir -p $(VENV)/logs
	@$(LOCK) $(BIN)/maturin develop --release --locked $(if $(UV),--uv) >$(VENV)/logs/native.log 2>&1 || \
		{ cat $(VENV)/logs/native.log >&2; echo "lastwords: the native module did not build" >&2; exit 1; }
	@touch $@
