"""Builds the CUDA module for the host: the kernels' own sources over a stand-in runtime.

Two things of CUDA's language have no meaning in C++ and are rewritten before compiling: launches
`kernel<<<grid, block, shared, stream>>>(arguments)` and the declaration of dynamic shared memory.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

from filelock import FileLock

SOURCES = Path(__file__).resolve().parents[2] / "kernels_cuda"
DRIVER = SOURCES / "common" / "driver"
RUNTIME = Path(__file__).resolve().parent / "emulated"
MODULE = "_cuda_emulated"
# The fortified longjmp() refuses to go to another stack.
UNFORTIFIED = "-U_FORTIFY_SOURCE"
# In a checked run (scripts/sanitize.py) the kernels are watched as the operators of the CPU are.
CHECKS = {
    "address": ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-g1"],
}.get(os.environ.get("DGBENCH_SANITIZER", ""), [])
LAUNCH = re.compile(r"([\w:]+(?:<[^<>;()]*>)?)\s*<<<(.+?)>>>\s*\(", re.DOTALL)


def missing() -> str:
    """Why the module cannot be built here, or ""."""
    if shutil.which("g++") is None:
        return "no g++ to compile the kernels for the host"
    if importlib.util.find_spec("nanobind") is None:
        return "nanobind is not installed"
    return ""


def rewrite(source: str) -> str:
    """CUDA source to C++: launches and dynamic shared memory."""
    source = source.replace(
        "extern __shared__ float shared[];", "float* shared = emulated::dynamic_shared.data();"
    )
    out, position = "", 0
    while match := LAUNCH.search(source, position):
        depth, end = 1, match.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(source[end], 0)
            end += 1
        grid, block, shared, stream = split_arguments(match[2])
        call = f"{match[1]}({source[match.end() : end - 1]})"
        out += source[position : match.start()]
        out += f"emulated::launch({grid}, {block}, {shared}, {stream}, [&] {{ {call}; }})"
        position = end
    return out + source[position:]


def split_arguments(text: str) -> list[str]:
    """Split at commas outside parentheses."""
    parts, depth = [""], 0
    for char in text:
        depth += {"(": 1, ")": -1}.get(char, 0)
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return parts


def build(cache: Path) -> ModuleType:
    """Compile (once per state of the sources) and import the module."""
    target = compiled(cache) / f"{MODULE}{sysconfig.get_config_var('EXT_SUFFIX')}"
    spec = importlib.util.spec_from_file_location(MODULE, target)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build_driver(cache: Path) -> Path:
    """The driver of the kernels as a program for the host, linked with the module's kernels."""
    folder = compiled(cache)
    units = sorted(DRIVER.glob("*.cpp"))
    digest = hashlib.sha256()
    for path in sorted(DRIVER.iterdir()):
        digest.update(path.read_bytes())
    target = folder / f"kernel_driver-{digest.hexdigest()[:16]}"
    with FileLock(f"{target}.lock"):
        if not target.exists():
            flags = [*flags_for(folder / "src"), *prelude_of(folder)]
            objects = compile_units(folder, units, flags)
            link(target, [*objects, *folder.glob("*_cu.o")])
    return target


def compiled(cache: Path) -> Path:
    """Folder of the module and its objects; compiled where it is not there yet."""
    import nanobind

    sources = [*device_sources(), *sorted(SOURCES.glob("*/*.h*")), *sorted(RUNTIME.iterdir())]
    digest = hashlib.sha256(sys.version.encode() + nanobind.__version__.encode())
    digest.update(" ".join(CHECKS).encode())
    for path in [*sources, Path(__file__)]:
        digest.update(path.read_bytes())
    folder = cache / digest.hexdigest()[:16]
    target = folder / f"{MODULE}{sysconfig.get_config_var('EXT_SUFFIX')}"
    # Workers of one test run start together: the first compiles, the others wait for it.
    with FileLock(f"{folder}.lock"):
        if not target.exists():
            compile_module(folder, target, Path(nanobind.__file__).parent)
    return folder


def device_sources() -> list[Path]:
    """Kernels, what they share, and bindings: of every operator's folder."""
    patterns = ("*/*.cu", "*/*.cuh", "*/cuda*.cpp")
    return sorted(path for pattern in patterns for path in SOURCES.glob(pattern))


def compile_module(folder: Path, target: Path, nanobind: Path) -> None:
    tree = folder / "src"
    kernels, bindings = [], []
    for path in device_sources():
        copy = tree / path.relative_to(SOURCES)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".cpp":
            shutil.copy(path, copy)
            bindings.append(copy)
            continue
        if path.suffix == ".cu":
            copy = copy.with_name(f"{path.stem}_cu.cpp")
            kernels.append(copy)
        copy.write_text(rewrite(path.read_text()))
    flags = flags_for(tree, nanobind / "include", nanobind / "ext/robin_map/include")
    unoptimized = [*flags, "-O0"]
    precompile(folder / "prelude.h", "cuda_runtime.h", flags)
    precompile(folder / "bindings.h", "common/operator_definition.hpp", unoptimized)
    objects = compile_units(folder, kernels, [*flags, *prelude_of(folder)])
    # Bindings take most of their time to instantiate and none to run. The linker keeps the first
    # of several definitions of an inline function: one that is optimized.
    included = ["-include", str(folder / "bindings.h")]
    objects += compile_units(folder, sorted(bindings), [*unoptimized, *included])
    objects += compile_units(folder, [nanobind / "src" / "nb_combined.cpp"], unoptimized)
    link(target, objects, "-shared")


def precompile(header: Path, included: str, flags: list[str]) -> None:
    """Write a header that includes another, beside it what the compiler reads in its place."""
    header.write_text(f"#include <{included}>\n")
    run_gcc(*flags, "-x", "c++-header", str(header), "-o", f"{header}.gch")


def prelude_of(folder: Path) -> list[str]:
    """Flags that take the stand-in runtime from its precompiled header: half of a kernel's time."""
    return ["-include", str(folder / "prelude.h")]


def flags_for(tree: Path, *more: Path) -> list[str]:
    """Of the compiler, for sources that include the rewritten ones of `tree`."""
    flags = ["-std=c++17", "-O1", "-fPIC", "-fvisibility=hidden", "-w", "-fopenmp"]
    flags += [UNFORTIFIED, f"-DDGBENCH_MODULE={MODULE}", "-DDGBENCH_EMULATED_DEVICE", *CHECKS]
    return flags + [
        f"-I{path}" for path in [tree, RUNTIME, SOURCES, *more, sysconfig.get_paths()["include"]]
    ]


def run_gcc(*words: str) -> None:
    # What is loaded into this process to watch it would watch the compiler too.
    environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    subprocess.run(["g++", *words], check=True, env=environment)


def compile_units(folder: Path, units: list[Path], flags: list[str]) -> list[Path]:
    def compile_unit(unit: Path) -> Path:
        made = folder / f"{unit.parent.name}_{unit.stem}.o"  # many operators have a cuda.cu
        run_gcc(*flags, "-c", str(unit), "-o", str(made))
        return made

    with ThreadPoolExecutor(os.cpu_count() or 2) as pool:
        return list(pool.map(compile_unit, units))


def link(target: Path, objects: list[Path], *how: str) -> None:
    unfinished = target.with_suffix(".tmp")
    run_gcc(*how, "-fopenmp", *CHECKS, *map(str, objects), "-o", str(unfinished))
    unfinished.replace(target)
