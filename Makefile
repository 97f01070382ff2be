# The front door. `make quickstart` shows what this is, `make test` proves it; both set up .venv by themselves.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Everything that makes an install stale. Python sources do not: the install is editable.
BUILD  := pyproject.toml CMakeLists.txt src/bcnn/base/version.py $(wildcard native/* native/*/*)
# C++ that .clang-format has the last word on.
FORMATTED := $(wildcard native/*.cpp native/*.h native/*/*.cpp native/*/*.h native/*/*.inl)

.PHONY: help quickstart test test-all check format sanitize neon avx512 wasm docs bench wheels devices clean
help:  ## this list
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

quickstart: $(VENV)/.train  ## set up, train a small network, pack it, verify it, look at it
	$(BIN)/bcnn quickstart

test: $(VENV)/.dev  ## set up and run the tests
	$(BIN)/python -m pytest -n 2

test-all: $(VENV)/.dev  ## the tests, and the whole corpus of networks that capture must get right or refuse
	$(BIN)/python -m pytest -n 2 -m "corpus or not corpus"

check: $(VENV)/.dev  ## lint, format, types, who imports whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(FORMATTED)
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo

format: $(VENV)/.dev  ## let ruff and clang-format format and fix
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(FORMATTED)
	$(BIN)/ruff check --fix .

sanitize: $(VENV)/.dev  ## the native core under AddressSanitizer, UBSan and ThreadSanitizer
	PYTHON=$(BIN)/python native/test/run.sh sanitize
	PYTHON=$(BIN)/python native/test/run.sh threads

neon: $(VENV)/.dev  ## the NEON kernels under qemu (needs g++-aarch64-linux-gnu and qemu-user)
	PYTHON=$(BIN)/python native/test/run.sh neon

avx512: $(VENV)/.dev  ## the AVX-512 kernels with every intrinsic emulated (needs libsimde-dev)
	PYTHON=$(BIN)/python native/test/run.sh avx512

docs: $(VENV)/.docs  ## the API page of everything public, in build/docs/index.html
	$(BIN)/python -m tools.pages.api build/docs

wasm: $(VENV)/.wasm  ## the engine of the web page: build it with zig from PyPI, and compare it with the one in the package
	$(BIN)/python -m tools.release.wasm --check

bench: $(VENV)/.bench  ## this engine against its rivals, in one interleaved run
	$(BIN)/python -m benchmarks.rivals

wheels: $(VENV)/.wheels  ## manylinux wheels for x86-64 and ARM64 in dist/, each checked and run (ARM64: needs qemu-user)
	$(BIN)/python -m tools.release.wheels

devices: $(VENV)/.devices  ## exported C on emulated Cortex-M, RISC-V, PowerPC and others (tools/release/devices.py says what that needs)
	$(BIN)/python -m tools.release.devices

clean:  ## remove what the above made
	rm -rf $(VENV) build dist

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "bcnn needs Python 3.11 or later, and $(PYTHON) is older: try make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.%: $(BUILD) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$(EXTRAS)]'
	@touch $@

$(VENV)/.train: EXTRAS := train
$(VENV)/.dev: EXTRAS := train,dev
$(VENV)/.bench: EXTRAS := train,bench
$(VENV)/.docs: EXTRAS := train,docs
$(VENV)/.wheels: EXTRAS := wheels
$(VENV)/.wasm: EXTRAS := wasm
$(VENV)/.devices: EXTRAS := train,wasm
