# Everything runs in ./.venv, which the first target that needs it creates. Needs python3, make and g++, no root.

PYTHON ?= python3
CXX ?= g++
export CXX
export PIP_DISABLE_PIP_VERSION_CHECK = 1

VENV := .venv
BIN := $(VENV)/bin
NATIVE := CMakeLists.txt tools/metal_to_host.py tools/source_lines.py $(shell find csrc metal -type f)
FORMATTED := $(shell find csrc metal tests/metal -name '*.h' -o -name '*.cpp' -o -name '*.metal')

.PHONY: build demo test lint format clean check

build: $(VENV)/built.stamp

demo: build
	$(BIN)/python -m mlx_gemm demo

test: build
	$(BIN)/python -m pytest

lint: build
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(FORMATTED)

format: build
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(FORMATTED)

clean:
	rm -rf $(VENV) build dist

# Without isolation the compiler sees the same headers at every build, so only what changed is compiled again.
$(VENV)/built.stamp: $(VENV)/tools.stamp $(NATIVE)
	$(BIN)/pip install --quiet --no-build-isolation --editable '.[cpu,bench,test,lint]'
	@touch $@

# The build's own requirements, taken from the list in pyproject.toml.
$(VENV)/tools.stamp: pyproject.toml | check
	$(PYTHON) -m venv $(VENV)
	sed -n '/^requires = \[/,/^\]/s/^ *"\(.*\)",$$/\1/p' pyproject.toml > $(VENV)/build-requires.txt
	$(BIN)/pip install --quiet --requirement $(VENV)/build-requires.txt 'cmake>=3.27' ninja
	@touch $@

define CHECK_PYTHON
import importlib.util, os, sys, sysconfig
header = os.path.join(sysconfig.get_path("include"), "Python.h")
if sys.version_info < (3, 10):
    sys.exit(f"mlx_gemm needs Python 3.10 or newer, this is {sys.version.split()[0]}: make PYTHON=/path/to/python3")
if importlib.util.find_spec("ensurepip") is None:
    sys.exit(f"{sys.executable} cannot create virtual environments: install python3-venv, or make PYTHON=/path/to/python3")
if not os.path.exists(header):
    sys.exit(f"{sys.executable} has no {header}: install python3-dev (Fedora: python3-devel), or make PYTHON=/path/to/python3")
endef
export CHECK_PYTHON

check:
	@command -v $(PYTHON) > /dev/null || { echo "mlx_gemm needs Python 3.10 or newer, and there is no $(PYTHON)"; exit 1; }
	@$(PYTHON) -c "$$CHECK_PYTHON"
	@command -v $(CXX) > /dev/null || { echo "mlx_gemm needs a C++20 compiler, and there is no $(CXX): install g++"; exit 1; }
