# Two commands for a newcomer: make demo, make test. Both set up everything they need in .venv.
BIN := .venv/bin
WORKERS ?= 2

.PHONY: setup browser demo test lint types tests test-long valgrind prove docs native bench bench-cpu bench-webgpu bench-optimizer bench-library bench-kernels clean

setup:
	@scripts/setup.sh

browser: setup
	@scripts/setup.sh browser

demo: setup
	@$(BIN)/vyre demo

test: lint types tests

lint: setup
	$(BIN)/ruff check src tests bench scripts
	$(BIN)/ruff format --check src tests bench scripts

types: setup
	$(BIN)/mypy

# Each worker begins with half of the tests, so that what the tests of a file share is made once.
tests: browser
	$(BIN)/pytest -n $(WORKERS) --dist worksteal

test-long: browser
	$(BIN)/pytest -n $(WORKERS) -m 'long or not long'

valgrind: setup
	@command -v valgrind >/dev/null || { echo "valgrind was not found. Fix: apt-get install valgrind" >&2; exit 1; }
	PYTHONMALLOC=malloc valgrind --suppressions=scripts/valgrind.supp --error-exitcode=9 $(BIN)/python scripts/check_memory.py

prove: setup
	$(BIN)/python scripts/prove.py

native: setup
	$(BIN)/pip install --quiet -e '.[native]'
	$(BIN)/python scripts/make_native.py

docs: setup
	$(BIN)/python scripts/make_docs.py

bench-cpu: setup
	$(BIN)/pip install --quiet -e '.[bench]'
	$(BIN)/python bench/cpu.py

bench-optimizer: setup
	$(BIN)/python bench/optimizer.py

bench-library: setup
	$(BIN)/pip install --quiet -e '.[bench]'
	$(BIN)/python bench/library.py

bench-kernels: setup
	$(BIN)/pip install --quiet -e '.[bench]'
	$(BIN)/python bench/plain.py

bench-webgpu: setup
	$(BIN)/python bench/webgpu.py

bench: setup
	$(BIN)/python bench/foundation.py

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist src/*.egg-info
