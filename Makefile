# Each target makes .venv when it is missing. PYTHON chooses the interpreter, ARGS passes options:
#   make up ARGS='--detach --port 10010'
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
ARGS   ?=
# Debian packages: what `make up` and `make test` need beside make itself.
DEBIAN := python3 python3-venv make curl

.PHONY: up down test check fix deps venv proto map conformance soak bench lock clean

up: $(VENV)/ready
	@exec $(BIN)/seawall up $(ARGS)

down: $(VENV)/ready
	@exec $(BIN)/seawall down

test: $(VENV)/ready check
	$(BIN)/pytest -m 'not soak' $(ARGS)

soak: $(VENV)/ready
	$(BIN)/pytest -m soak $(ARGS)

# CPU of our code, calls and requests as ratios, about 5 minutes (docs/benchmarks.md):  make bench ARGS='--only code'
bench: $(VENV)/ready
	$(BIN)/python -m bench $(ARGS)

check: $(VENV)/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fix: $(VENV)/ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

deps:
	apt-get update && apt-get install -y $(DEBIAN)

venv: $(VENV)/ready

$(VENV)/ready: requirements/dev.txt pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "no $(PYTHON) here: run 'make deps' as root, or set PYTHON=" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or later is needed; set PYTHON=" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip, ssl' 2>/dev/null || { echo "python3-venv is missing: run 'make deps' as root" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# Regenerates seawall/proto/gen from our .proto files.
proto: $(VENV)/ready
	$(BIN)/python tools/proto.py

# RFC 9113 and HPACK by h2spec, against our transport; needs Go.
conformance: $(VENV)/ready
	$(BIN)/python tools/conformance.py

# Which package imports which.
map: $(VENV)/ready
	@$(BIN)/python tools/module_map.py

# Locks both requirement files; needs uv.
lock:
	uv pip compile pyproject.toml --all-extras --group dev $(LOCK) -o requirements/dev.txt
	uv pip compile pyproject.toml --all-extras $(LOCK) -o requirements/run.txt
	uv pip compile --group build $(LOCK) --constraint requirements/dev.txt -o requirements/build.txt
LOCK := --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --constraint requirements/constraints.txt

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis dist
