"""Builds the macOS arm64 wheels on Linux and checks them (docs/apple.md).

    python tools/cross/build_wheels.py [--output dist-macos] [PYTHON...]

One wheel for each interpreter, by default the one that runs this. Needs the `check` extra of pyproject.toml; everything
else goes to build/cross.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cross import check_wheel, link_stubs, macho

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = ROOT / "build" / "cross"  # macos-arm64.cmake knows it
TOOLCHAIN = Path(__file__).resolve().parent / "macos-arm64.cmake"
MINIMUM_OS = "14.0"
VERSION = "'%d%d' % sys.version_info[:2]"
# Built against the first, checked against both: MLX has a wheel for each.
MLX_FOLDERS = {14: BUILD / "macos-14", 26: BUILD / "macos-26"}


def run(*command: str | Path, **environment: str) -> None:
    subprocess.run([str(word) for word in command], check=True, env={**os.environ, **environment})


def unpack(platform: int, *packages: str) -> None:
    """MLX's macOS wheels as a folder, without the compiled kernels, which nothing here reads."""
    folder = MLX_FOLDERS[platform]
    if all((folder / f"{package.replace('-', '_')}-{version('mlx')}.dist-info").exists() for package in packages):
        return
    shutil.rmtree(folder, ignore_errors=True)
    wheels = BUILD / "wheels" / str(platform)
    options = ["--only-binary", ":all:", "--no-deps", "--no-cache-dir", "--python-version", "3.11"]
    run(sys.executable, "-m", "pip", "download", "--quiet", "--platform", f"macosx_{platform}_0_arm64", *options,
        "--dest", wheels, *(f"{package}=={version('mlx')}" for package in packages))  # fmt: skip
    for path in wheels.iterdir():
        with zipfile.ZipFile(path) as wheel:
            wheel.extractall(folder, [name for name in wheel.namelist() if not name.endswith(".metallib")])
    shutil.rmtree(wheels)


def prepare() -> None:
    unpack(14, "mlx-metal", "mlx")
    unpack(26, "mlx-metal")
    binaries = [p for p in MLX_FOLDERS[14].rglob("*") if p.suffix in (".dylib", ".so")]
    link_stubs.write_stubs(BUILD / "lib", map(macho.read, binaries))


def ask(python: Path, expression: str) -> str:
    command = [python, "-c", f"import sys, sysconfig; print({expression})"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def builder(python: Path, tag: str) -> Path:
    """An interpreter of that version with what the build needs: this one, or one in an environment of its own."""
    if tag == ask(Path(sys.executable), VERSION):
        return Path(sys.executable)
    environment = BUILD / f"venv-{tag}"
    run(python, "-m", "venv", environment)
    needs = [f"{package}=={version(package)}" for package in ("nanobind", "scikit-build-core")]
    run(environment / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-cache-dir", *needs)
    return environment / "bin" / "python"


def own_headers(python: Path, folder: Path) -> list[str]:
    """CMake definitions that replace the headers of Debian's Pythons, whose pyconfig.h refuses to be read for macOS.

    What it would include for this machine holds for macOS where the headers of extensions ask.
    """
    include = Path(ask(python, "sysconfig.get_path('include')"))
    settings = include.parent / ask(python, "sysconfig.get_config_var('MULTIARCH')") / include.name / "pyconfig.h"
    if not settings.exists():
        return []
    shutil.copytree(include, folder)
    shutil.copy(settings, folder)
    return [f"Python_INCLUDE_DIR={folder}"]


def build(python: Path, output: Path) -> Path:
    """One wheel. The extension's file name and the wheel's tag follow from two variables that packaging tools share."""
    tag = ask(python, VERSION)
    python = builder(python, tag)
    folder = BUILD / f"cp{tag}"
    shutil.rmtree(folder, ignore_errors=True)  # CMake would keep the flags of an older toolchain file
    defines = [f"CMAKE_TOOLCHAIN_FILE={TOOLCHAIN}", "CMAKE_COMPILE_WARNING_AS_ERROR=ON"]
    defines += own_headers(python, folder / "python")
    settings = [f"-Cbuild-dir={folder}", *(f"-Ccmake.define.{define}" for define in defines)]
    run(python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-cache-dir",
        "--wheel-dir", output, *settings, ROOT,
        PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",  # the python3 with ziglang
        ZIG_GLOBAL_CACHE_DIR=str(BUILD / "zig"),
        ZIG_LOCAL_CACHE_DIR=str(BUILD / "zig"),
        _PYTHON_HOST_PLATFORM=f"macosx-{MINIMUM_OS}-arm64",
        SETUPTOOLS_EXT_SUFFIX=f".cpython-{tag}-darwin.so",
    )  # fmt: skip
    return next(output.glob(f"mlx_gemm-*-cp{tag}-cp{tag}-macosx_*.whl"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pythons", nargs="*", type=Path, default=[Path(sys.executable)], metavar="PYTHON")
    parser.add_argument("--output", type=Path, default=ROOT / "dist-macos")
    options = parser.parse_args()
    prepare()
    wheels = [build(python, options.output) for python in options.pythons]
    return check_wheel.report(wheels, list(MLX_FOLDERS.values()))


if __name__ == "__main__":
    sys.exit(main())
