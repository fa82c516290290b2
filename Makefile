# Everything runs in ./.venv, which the first target that needs it creates. Needs python3, make and g++, no root.

PYTHON ?= python3
CXX ?= g++
export CXX
export PIP_DISABLE_PIP_VERSION_CHECK = 1
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(shell getconf _NPROCESSORS_ONLN)

VENV := .venv
BIN := $(VENV)/bin
NATIVE := CMakeLists.txt tools/metal_to_host.py tools/source_lines.py $(shell find csrc metal -type f)
FORMATTED := $(shell find csrc metal tests/cpp tests/metal tools/mlx_kernels -name '*.h' -o -name '*.cpp' -o -name '*.metal')

.PHONY: build demo test fidelity clang-fidelity clang-smoke mutants mutants-doc lint stubs format clean check check-builds \
  replay sanitize address-spaces aarch64 macos-wheels

build: $(VENV)/built.stamp

demo: build
	$(BIN)/python -m mlx_gemm demo

test: build
	$(BIN)/python -m pytest

# MLX's own kernels on the host runtime, all of them; clang-* compile them with the clang of PyPI's ziglang package.
fidelity: build
	$(BIN)/python -m pytest -m "slow or not slow" tests/test_fidelity.py

CLANG_TEST = CXX="$(CURDIR)/tests/cpp/zig-c++" PYTHON="$(CURDIR)/$(BIN)/python" $(BIN)/python -m pytest

clang-fidelity: build
	$(BIN)/pip install --quiet --no-build-isolation --editable '.[check]'
	$(CLANG_TEST) -m "slow or not slow" tests/test_fidelity.py

clang-smoke: build
	$(BIN)/pip install --quiet --no-build-isolation --editable '.[check]'
	$(CLANG_TEST) tests/test_fidelity.py

# Seeds bugs one at a time and requires that a check finds each (tools/mutants.py).
mutants: build
	PYTHONPATH=tests $(BIN)/python tools/mutants.py

mutants-doc: build
	PYTHONPATH=tests $(BIN)/python tools/mutants.py --write-doc

lint: build
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(FORMATTED)
	$(BIN)/python tools/lint/metal_lint.py --all

# The types of the extension, for editors and mypy.
stubs: build
	$(BIN)/python -m nanobind.stubgen --quiet --module mlx_gemm._ext --output-file mlx_gemm/_ext.pyi

format: build
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(FORMATTED)

# Plain programs (tests/cpp): GPU launches replayed; the ladder and the portable C++ under sanitizers, with address
# spaces as types, and on another processor. Some of MLX's kernels by clang.
check-builds: replay sanitize address-spaces aarch64 clang-smoke

KERNEL_CHECK = PATH="$(CURDIR)/$(BIN):$$PATH" cmake -S tests/cpp -G Ninja -DCMAKE_BUILD_TYPE=Release

replay: build
	$(KERNEL_CHECK) -B build/replay
	$(BIN)/cmake --build build/replay --target check_replay
	build/replay/check_replay

sanitize: build
	$(KERNEL_CHECK) -B build/sanitize -DCMAKE_CXX_FLAGS="-fsanitize=address,undefined -fno-sanitize-recover=all"
	$(BIN)/cmake --build build/sanitize
	build/sanitize/check_kernels
	build/sanitize/check_layout
	build/sanitize/check_select
	build/sanitize/check_cpu

address-spaces: build
	$(BIN)/pip install --quiet --no-build-isolation --editable '.[check]'
	PYTHON="$(CURDIR)/$(BIN)/python" $(KERNEL_CHECK) -B build/address-spaces -DMLX_GEMM_ADDRESS_SPACES=ON \
	  -DCMAKE_CXX_COMPILER="$(CURDIR)/tests/cpp/zig-c++"
	PYTHON="$(CURDIR)/$(BIN)/python" $(BIN)/cmake --build build/address-spaces --target check_kernels check_cpu
	build/address-spaces/check_kernels
	build/address-spaces/check_cpu

# Needs qemu-user-static and g++-aarch64-linux-gnu (Debian's names).
aarch64: build
	$(KERNEL_CHECK) -B build/aarch64 -DCMAKE_TOOLCHAIN_FILE="$(CURDIR)/tests/cpp/aarch64-linux-gnu.cmake"
	$(BIN)/cmake --build build/aarch64
	qemu-aarch64-static build/aarch64/check_kernels
	qemu-aarch64-static build/aarch64/check_layout
	qemu-aarch64-static build/aarch64/check_select
	qemu-aarch64-static build/aarch64/check_cpu

# Wheels for macOS on arm64, built and checked here (docs/apple.md), one for each of MACOS_PYTHONS; by default for the
# Python in .venv. The package index is asked once for MLX's own macOS wheels.
macos-wheels: build
	$(BIN)/pip install --quiet --no-build-isolation --editable '.[check]'
	$(BIN)/python tools/cross/build_wheels.py $(MACOS_PYTHONS)

clean:
	rm -rf $(VENV) build dist dist-macos

# Without isolation the compiler sees the same headers at every build, so only what changed is compiled again.
$(VENV)/built.stamp: $(VENV)/tools.stamp $(NATIVE)
	@echo "Compiling the extension and the kernels: about a minute"
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
