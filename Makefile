# Two commands do everything on a fresh machine with Python 3.11 or newer: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-long test-all test-oldest lint types docs wheel release-check bench clean

demo: $(VENV)/.demo
	$(BIN)/miue demo --out demo --overwrite

# Two test processes share the cores: with more threads each, they wait for each other.
test test-long test-all: export OMP_NUM_THREADS = 1
# Tests start many processes, which would compile all modules where a user has set this.
test test-long test-all: export PYTHONDONTWRITEBYTECODE =

test: $(VENV)/.develop
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not long and not slow and not gpu"

# Whole commands, examples of the pages, and simulations, of more than a second or so each. They run as users run them,
# without the checks of shapes in each function, which `make test` makes.
test-long: export CHECK_SHAPES = no
test-long: $(VENV)/.develop
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "long and not slow and not gpu"

test-all: $(VENV)/.develop
	$(BIN)/python -m pytest -n 2

# With the oldest versions of libraries that pyproject.toml allows.
test-oldest: $(VENV)/.created
	OMP_NUM_THREADS=1 sh tests/oldest.sh "$(BIN)/python" "$(CURDIR)"

lint: $(VENV)/.develop
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/.develop
	$(BIN)/mypy

docs: $(VENV)/.develop
	$(BIN)/python docs/generate.py --check
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir site

# Build the wheel and use it from a clean environment, outside the checkout.
wheel: $(VENV)/.develop
	rm -rf dist && $(BIN)/python -m build --wheel --outdir dist . > /dev/null
	sh tests/wheel.sh "$(PYTHON)" "$(CURDIR)"

# All that must hold before a version is published; it uploads nothing.
release-check: $(VENV)/.created
	bash tests/release.sh "$(BIN)/python"

bench: $(VENV)/.develop
	$(BIN)/python benchmarks/bench.py
	$(BIN)/python benchmarks/reading.py
	$(BIN)/python benchmarks/slides.py
	$(BIN)/python benchmarks/cohort.py
	$(BIN)/python benchmarks/cohort.py --made --bags 1000
	$(BIN)/python benchmarks/hand_loop.py
	$(BIN)/python benchmarks/peers.py
	$(BIN)/python benchmarks/ensemble.py
	$(BIN)/python benchmarks/draws.py
	$(BIN)/python benchmarks/methods.py

$(VENV)/.created:
	$(PYTHON) -c "import sys; sys.exit('miue needs Python 3.11 or newer; pass PYTHON=...') if sys.version_info < (3, 11) else None"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	touch $@

$(VENV)/.demo: $(VENV)/.created pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable .
	touch $@

$(VENV)/.develop: $(VENV)/.demo
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable . --group dev
	$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true  # by pip it takes one core; templates of packages are no Python
	touch $@

clean:
	rm -rf $(VENV) build dist site demo
