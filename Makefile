# Two commands do all the set-up: `make run` and `make test`.
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Hundreds of short processes run in the tests: none of them is to compile the package anew.
export PYTHONDONTWRITEBYTECODE :=

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
NPM := $(VENV)/npm
# Written by npm at the end of an installation.
MODULES := web/node_modules/.package-lock.json
BIOME := web/node_modules/.bin/biome
BUNDLE := src/toolkiln/surfaces/web/static/vendor/.made

.PHONY: run test check lint types bench corpus thorough fuzz lock browser faults soak chaos conformance postgres redis chromium web screenshots clean

run: $(STAMP) web  ## admit and list the example tools, check one, call one, and stop an attack
	$(BIN)/toolkiln admit --yes --tools examples/tools
	@echo
	@$(BIN)/toolkiln list --tools examples/tools
	@echo
	@$(BIN)/toolkiln check examples/flawed.py || true
	@echo
	$(BIN)/toolkiln call convert_units value=26.2 source=mi target=km --tools examples/tools
	@echo
	$(BIN)/toolkiln admit --yes --tools examples/attack.py
	$(BIN)/toolkiln call steal_secrets --tools examples/attack.py

# One worker more than cores: tests wait for disks and for processes that end. Each begins with
# neighbours, which share servers, and takes over from others when it has done.
test: $(STAMP) postgres redis chromium web  ## everything that must hold
	$(BIN)/python -m pytest -n $$(($$(nproc) + 1)) --dist worksteal

conformance: $(STAMP) $(NPM)/.installed  ## the protocol's own suite, the Inspector, agents' CLIs
	$(BIN)/python -m pytest -m conformance tests/conformance tests/surfaces/mcp/test_waiting.py

browser: $(STAMP) chromium web  ## every page in a real browser
	$(BIN)/python -m pytest -n $$(($$(nproc) + 1)) --dist worksteal -m browser

faults: $(STAMP) postgres redis  ## processes killed at every step, networks cut, many processes at once
	$(BIN)/python -m pytest -n $$(($$(nproc) + 1)) --dist worksteal -m faults

soak: $(STAMP)  ## thousands of good and hostile calls, and what they leave behind
	$(BIN)/python -m pytest -m soak

chaos: $(STAMP)  ## the long faults of a fleet: workers and Redis killed, stopped, restarted at random
	$(BIN)/python -m pytest -s -m chaos tests/fleet/chaos

# The store's tests start a server of their own; where there is none, root can install it.
postgres:
	@command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 \
	|| test "$$(id -u)" != 0 || { apt-get update -qq && apt-get install -y -qq postgresql; }

# The fleet's tests start a server of their own; where there is none, root can install it, and
# no service is started: `redis-tools` has the program, under the name of a check.
# Not at the same time as others: apt does one thing after the other.
redis: | postgres
	@command -v redis-server >/dev/null || test "$$(id -u)" != 0 \
	|| { apt-get update -qq && apt-get install -y -qq --no-install-recommends redis-tools \
	&& ln -s /usr/bin/redis-check-rdb /usr/local/bin/redis-server; }

# A page is opened in a real browser; where there is none, root can install it.
chromium: | redis
	@command -v chromium >/dev/null || test "$$(id -u)" != 0 \
	|| { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; }

# The page's bundle. This needs npm and no Python; root installs npm where it is missing.
web: $(BUNDLE)

$(BUNDLE): $(MODULES) web/hashes.json web/build.mjs $(wildcard web/entries/*)
	@if test -e $(MODULES); then \
		node web/build.mjs web/node_modules $(@D) $(ACCEPT) && touch $@; \
	elif ! test -e $(@D)/preact.js; then \
		echo "npm is missing: the page does not work until you install npm and run \`make web\`"; \
	fi

$(MODULES): web/package-lock.json
	@command -v npm >/dev/null || test "$$(id -u)" != 0 \
	|| { apt-get update -qq && apt-get install -y -qq --no-install-recommends npm; }
	@! command -v npm >/dev/null || { npm ci --prefix web --ignore-scripts --no-audit --no-fund \
		--loglevel=error && touch $@; }

# The tests leave a part of two cores idle: what fits into that runs beside them.
check: lint  ## what CI runs
	@$(MAKE) --no-print-directory --jobs=2 beside test

beside: types
	@$(MAKE) --no-print-directory chaos CHAOS_SECONDS=30

lint: $(STAMP) web
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@! test -x $(BIOME) || $(BIOME) lint --error-on-warnings

types: $(STAMP)
	$(BIN)/mypy

bench: $(STAMP) chromium web  ## the figures of docs/benchmarks.md
	$(BIN)/python -m bench

# `make screenshots NAMES="tool runs"` takes some of them.
screenshots: $(STAMP) chromium web  ## the pictures of docs/images
	$(BIN)/python scripts/screenshots.py $(NAMES)

corpus: $(STAMP)  ## read the standard library and every installed package
	$(BIN)/python -m pytest -n auto -m corpus

thorough: $(STAMP)  ## try properties with ten times the examples and more, others each time
	$(BIN)/python -m pytest -n auto -m hypothesis --hypothesis-profile=thorough

# The targets one after the other; `make fuzz TARGETS="source schema" SECONDS=60` runs some.
# atheris guides them by coverage; where it cannot be installed, hypothesis generates the input.
SECONDS := 600
fuzz: $(STAMP)  ## look for input that breaks a parser of foreign bytes, $(SECONDS) s for each
	@$(BIN)/python -c "import atheris" 2>/dev/null \
	|| $(BIN)/uv pip install --quiet --python $(BIN)/python --only-binary :all: atheris || true
	for target in $(or $(TARGETS),$$($(BIN)/python -m fuzz)); do \
		$(BIN)/python -m fuzz $$target --seconds $(SECONDS) || exit 1; \
	done

clean:
	rm -rf $(VENV) $(dir $(BUNDLE)) $(dir $(MODULES)) .mypy_cache .pytest_cache .ruff_cache .hypothesis

# Debian ships venv without ensurepip, so pip is lent from outside. uv installs and compiles all the
# rest in a third of pip's time; where it cannot, as it knows nothing of pip's settings, pip does.
# Nothing is installed whose hash is not in the lock, the backend that builds the project included.
UV := $(BIN)/uv pip install --quiet --python $(BIN)/python --no-cache --no-deps --compile-bytecode
PIP := python3 -m pip --python $(BIN)/python install --quiet --no-deps
$(STAMP): pyproject.toml requirements-dev.lock
	python3 -m venv --clear --without-pip $(VENV)
	sed -n '/^uv==/,/[^\\]$$/p' requirements-dev.lock >$(VENV)/uv.lock
	$(PIP) --require-hashes -r $(VENV)/uv.lock
	$(UV) --require-hashes -r requirements-dev.lock || $(PIP) --require-hashes -r requirements-dev.lock
	$(UV) --no-build-isolation --editable . || $(PIP) --no-build-isolation --editable .
	@$(BIN)/python -m compileall -qq src
	@touch $@

# Versions stay unless pyproject.toml rules them out; `make lock UPGRADE=--upgrade` takes the newest.
# The image's lock holds a part of the same packages, with the same hashes.
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-annotate --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock"
lock: $(STAMP)  ## resolve what development and the image install
	$(COMPILE) $(UPGRADE) --all-extras --group dev --output-file requirements-dev.lock pyproject.toml
	echo hatchling | $(COMPILE) --extra redis --extra postgres --constraint requirements-dev.lock \
		--output-file deploy/container/requirements.lock pyproject.toml -

# Without npm the checks that need it say that they were skipped.
$(NPM)/.installed: tests/conformance/package.json $(STAMP)
	mkdir -p $(NPM)
	cp tests/conformance/package.json $(NPM)
	! command -v npm >/dev/null || npm install --prefix $(NPM) --ignore-scripts --no-audit \
		--no-fund --no-package-lock --loglevel=error
	@touch $@
