# `make chat` sets everything up once and starts the chat; `make test` runs the test suite,
# `make test-slow` the tests that take longer, and `make test-gpu-facts` those of the library once
# more as if MLX computed on a GPU. All need Python 3.11 or later and nothing else, on macOS (Apple
# Silicon) or Linux (x86-64).

CANDIDATES := python3.12 python3.13 python3.11 python3.14 python3 python
CHECK := -I mlxspec/device/machine_check.py
PYTHON ?= $(shell for p in $(CANDIDATES); do $$p $(CHECK) >/dev/null 2>&1 && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
LINTERS := $(VENV)/linters
SITE := $(VENV)/site
ASK_NO_DEVICE := app campaigns cli house llm_plugin params server trace
SUDO := $(shell test "$$(id -u)" = 0 || echo sudo -n)
HAS_FAST_BLAS := env -u MLXSPEC_BLAS $(BIN)/python -c \
	'import sys; from mlxspec.device import backend; sys.exit(backend.facts().is_stock_blas)'

.PHONY: chat test test-slow test-gpu-facts docs site lint model openblas

chat: $(INSTALLED) openblas model
	@$(BIN)/mlxspec chat

# Two workers of one BLAS thread each use two cores better than one worker of two threads.
test: $(INSTALLED) openblas model
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist worksteal -m "not slow"

test-slow: $(INSTALLED) openblas model
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist worksteal -m slow

# What does as a GPU would, though a CPU may still compute: nearly all that differs on a Mac. The
# rooms that are left out do not ask which processor this is, so their tests would say nothing new.
test-gpu-facts: $(INSTALLED) openblas model
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist worksteal -m "not slow" \
		--device-facts gpu $(ASK_NO_DEVICE:%=--ignore tests/%)

# The manual as a page: all keys, commands, flags and settings.
docs: $(INSTALLED)
	$(BIN)/mlxspec man --markdown > docs/manual.md

# The documentation as a site, in build/site.
site: $(SITE)
	$(BIN)/mkdocs build --config-file docs/site/mkdocs.yml

lint: $(LINTERS)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# Installs again whenever pyproject.toml has changed.
$(INSTALLED): pyproject.toml
	@for p in $(or $(PYTHON),$(CANDIDATES)); do \
		said=$$($$p $(CHECK) 2>&1); code=$$?; \
		test $$code -gt 1 || { test -z "$$said" || echo "$$said"; exit $$code; }; done; \
		echo "Python 3.11 or later is needed, and none was found: install it from python.org" \
			"or with your package manager, or name it: make PYTHON=/path/to/python3"; exit 1
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || { \
		rm -rf $(VENV) && $(PYTHON) -m venv $(VENV); } || { rm -rf $(VENV); \
		echo "$(PYTHON) cannot make a virtual environment: install its venv module" \
			"(apt install python3-venv), then run make again"; exit 1; }
	@echo "installing mlxspec and what it needs into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	@touch $@

$(LINTERS): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[lint]'
	@touch $@

$(SITE): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[site]'
	@touch $@

# Fetched once into the user's cache folder.
model: $(INSTALLED)
	@$(BIN)/mlxspec models --fetch >/dev/null

# Never asks for a password; without OpenBLAS everything works, only slower.
openblas: $(INSTALLED)
	@$(HAS_FAST_BLAS) || ! command -v apt-get >/dev/null || { \
		echo "installing libopenblas0 ..."; \
		{ $(SUDO) apt-get update -qq && $(SUDO) apt-get install -qq --yes libopenblas0; } \
		>/dev/null 2>&1 || true; }
	@$(HAS_FAST_BLAS) || echo "No OpenBLAS: verifying n tokens costs n times one, so drafting" \
		"cannot make replies faster here. To change that: sudo apt install libopenblas0"
