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
from collections.abc import Callable
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
INCLUDE = re.compile(r"^#include .*$", re.MULTILINE)
BINDS = re.compile(r"^void bind_\w+\(nb::module_& m\) \{$", re.MULTILINE)
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
    digest = hashlib.sha256()
    for path in sorted(DRIVER.iterdir()):
        digest.update(path.read_bytes())
    target = folder / f"kernel_driver-{digest.hexdigest()[:16]}"
    with FileLock(f"{target}.lock"):
        if not target.exists():
            unit = folder / "driver.cpp"
            unit.write_text("".join(f'#include "{p}"\n' for p in sorted(DRIVER.glob("*.cpp"))))
            (made,) = compile_units([unit], flags_for(folder / "src"), folder)
            link(target, [made, folder / "kernels.o"])
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
    for path in SOURCES.glob("*/*.cuh"):
        copy = tree / path.relative_to(SOURCES)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(rewrite(path.read_text()))
    kernels, bindings = folder / "kernels.cpp", folder / "bindings.cpp"
    kernels.write_text(joined(sorted(SOURCES.glob("*/*.cu")), kernel_apart))
    bindings.write_text(joined(sorted(SOURCES.glob("*/cuda*.cpp")), binding_apart))
    flags = flags_for(tree, nanobind / "include", nanobind / "ext/robin_map/include")
    objects = compile_units([kernels], flags, folder)
    # Bindings take most of their time to instantiate and none to run. The linker keeps the first
    # of several definitions of an inline function: one that is optimized.
    unoptimized = [*flags, "-O0"]
    objects += compile_units([bindings, nanobind / "src/nb_combined.cpp"], unoptimized, folder)
    link(target, objects, "-shared")


def joined(sources: list[Path], apart: Callable[[str, str], str]) -> str:
    """One source of many, half of whose time the compiler would spend on the same headers.

    Headers come first. Names that two sources give to things of their own are kept `apart` in
    namespaces, whose names it is given.
    """
    headers, bodies = [], []
    for number, path in enumerate(sources):
        text = rewrite(path.read_text())
        headers += INCLUDE.findall(text)
        body = apart(INCLUDE.sub("", text), f"source_{number}")
        bodies.append(f'#line 1 "{path}"\n{body}')
    return "\n".join([*dict.fromkeys(headers), *bodies])


def kernel_apart(text: str, own: str) -> str:
    """All that a source of kernels defines lies in `own`; its launchers are C's."""
    return text.replace("namespace dgbench {", f"namespace dgbench::{own} {{")


def binding_apart(text: str, own: str) -> str:
    """Things of this source alone lie in `own`, which the function that binds it looks into."""
    text, bound = BINDS.subn(rf"\g<0> using namespace {own};", text)
    if not bound:
        return text
    text = text.replace("\nnamespace {\n", f"\nnamespace {own} {{ namespace {{\n")
    return text.replace("\n}  // namespace\n", "\n} }\n")


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


def compile_units(units: list[Path], flags: list[str], folder: Path) -> list[Path]:
    def compile_unit(unit: Path) -> Path:
        made = folder / f"{unit.stem}.o"
        run_gcc(*flags, "-c", str(unit), "-o", str(made))
        return made

    with ThreadPoolExecutor(os.cpu_count() or 2) as pool:
        return list(pool.map(compile_unit, units))


def link(target: Path, objects: list[Path], *how: str) -> None:
    unfinished = target.with_suffix(".tmp")
    run_gcc(*how, "-fopenmp", *CHECKS, *map(str, objects), "-o", str(unfinished))
    unfinished.replace(target)
