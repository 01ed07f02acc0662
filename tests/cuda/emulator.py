"""Builds the CUDA module for the host: the kernels' own sources over a stand-in runtime.

Two things of CUDA's language have no meaning in C++ and are rewritten before compiling: launches
`kernel<<<grid, block, shared, stream>>>(arguments)` and the declaration of dynamic shared memory.

What is compiled is kept in the user's cache folder under a hash of all that goes into it, so that a
run compiles what has changed since: of the kernels, the bindings and nanobind.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from types import ModuleType

from filelock import FileLock

from dgbench.runtime.machine import cache_root

SOURCES = Path(__file__).resolve().parents[2] / "kernels_cuda"
DRIVER = SOURCES / "common" / "driver"
RUNTIME = Path(__file__).resolve().parent / "emulated"
CACHE = cache_root() / "cuda-emulator"
KEPT = 12
"""Newest files of each kind that stay in the cache."""
MODULE = "_cuda_emulated"
# In a checked run (scripts/sanitize.py) the kernels are watched as the operators of the CPU are.
CHECKS = {
    "address": ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-g1"],
}.get(os.environ.get("DGBENCH_SANITIZER", ""), [])
FLAGS = [
    "-std=c++17", "-fPIC", "-fvisibility=hidden", "-w", "-fopenmp",
    "-U_FORTIFY_SOURCE",  # the fortified longjmp() refuses to go to another stack
    f"-DDGBENCH_MODULE={MODULE}", "-DDGBENCH_EMULATED_DEVICE", *CHECKS,
]  # fmt: skip
# The compiler collects its garbage late: a tenth of its time for 0.4 GB.
PATIENT = ["--param", "ggc-min-expand=1000", "--param", "ggc-min-heapsize=400000"]
INCLUDE = re.compile(r"^#include .*$", re.MULTILINE)
BINDS = re.compile(r"^void bind_\w+\(nb::module_& m\) \{$", re.MULTILINE)
LAUNCH = re.compile(r"([\w:]+(?:<[^<>;()]*>)?)\s*<<<(.+?)>>>\s*\(", re.DOTALL)


def missing() -> str:
    """Why the module cannot be built here, or ""."""
    if shutil.which("g++") is None:
        return "no g++ to compile the kernels for the host"
    if importlib.util.find_spec("nanobind") is None:
        return "nanobind is not installed"
    if os.environ.get("DGBENCH_SANITIZER") == "thread":
        return "ThreadSanitizer does not follow the emulator's stacks"
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


@cache
def build() -> ModuleType:
    """The module, compiled where the cache does not have it; it can be loaded once."""
    import nanobind

    own = Path(nanobind.__file__).parent
    kernels = joined(sorted(SOURCES.glob("*/*.cu")), kernel_apart)
    bindings = joined(sorted(SOURCES.glob("*/cuda*.cpp")), binding_apart)
    # Bindings take most of their time to instantiate and none to run. The linker keeps the first
    # of several definitions of an inline function: one that is optimized.
    units = {
        "kernels": (kernels, "-O1", ()),
        "bindings": (bindings, "-O0", (own / "include", own / "ext/robin_map/include")),
        "nanobind": ('#include "nb_combined.cpp"\n', "-O0",
                     (own / "src", own / "include", own / "ext/robin_map/include")),
    }  # fmt: skip
    target = linked(MODULE, units, sysconfig.get_config_var("EXT_SUFFIX"), "-shared")
    spec = importlib.util.spec_from_file_location(MODULE, target)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build_driver() -> Path:
    """The driver of the kernels as a program for the host."""
    units = {
        "driver": (joined(sorted(DRIVER.glob("*.cpp")), lambda text, _: text), "-O1", (DRIVER,)),
        "kernels": (joined(sorted(SOURCES.glob("*/*.cu")), kernel_apart), "-O1", ()),
    }
    return linked("kernel_driver", units, "")


def build_library(name: str, source: str) -> Path:
    """A library of one source, whose functions are C's."""
    unit = (source, "-O1 -fvisibility=default", ())
    return linked(name, {name: unit}, ".so", "-shared")


Unit = tuple[str, str, tuple[Path, ...]]
"""Text, flags of its own, and folders that it includes from beside those of the kernels."""


def linked(name: str, units: dict[str, Unit], suffix: str, *how: str) -> Path:
    """Compile what the cache does not have of some units, all at once, and link them."""
    try:
        CACHE.mkdir(parents=True, exist_ok=True)
        folder = CACHE
    except OSError:
        folder = Path(tempfile.mkdtemp())
    keys = {unit: key_of(unit, *parts) for unit, parts in units.items()}
    target = folder / f"{name}-{digest(*keys.values(), *how)}{suffix}"
    # Workers of one test run start together: the first compiles, the others wait for it.
    with FileLock(folder / "lock"):
        if target.exists():
            target.touch()
            return target
        with ThreadPoolExecutor(os.cpu_count() or 2) as pool:
            jobs = [(unit, keys[unit], parts, folder) for unit, parts in units.items()]
            objects = list(pool.map(lambda job: compile_unit(*job), jobs))
        unfinished = target.with_suffix(".tmp")
        run_gcc(*how, "-fopenmp", *CHECKS, *map(str, objects), "-o", str(unfinished))
        unfinished.replace(target)
        for kind in {*units, name}:
            files = sorted(folder.glob(f"{kind}-*"), key=lambda path: path.stat().st_mtime)
            for old in files[:-KEPT]:
                old.unlink()
    return target


def compile_unit(name: str, key: str, unit: Unit, folder: Path) -> Path:
    text, flags, include = unit
    made = folder / f"{name}-{key}.o"
    if made.exists():
        made.touch()
        return made
    with tempfile.TemporaryDirectory() as tree:
        for path, header in headers().items():
            copy = Path(tree) / path
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(header)
        source = Path(tree) / f"{name}.cpp"
        source.write_text(text)
        folders = [*include, tree, RUNTIME, SOURCES, sysconfig.get_paths()["include"]]
        unfinished = made.with_suffix(".tmp")
        run_gcc(*FLAGS, *PATIENT, *flags.split(), *(f"-I{path}" for path in folders), "-c",
                str(source), "-o", str(unfinished))  # fmt: skip
        unfinished.replace(made)
    return made


def key_of(name: str, text: str, flags: str, include: tuple[Path, ...]) -> str:
    """Hash of all that an object is made from; headers of the kernels are not nanobind's."""
    import nanobind

    own = [] if name == "nanobind" else [text, *headers().values(), *others()]
    python = [sys.version, nanobind.__version__] if include else []
    return digest(compiler(), *FLAGS, flags, *python, *own)


@cache
def headers() -> dict[str, str]:
    """Rewritten headers of the kernels, by their place."""
    paths = sorted(SOURCES.glob("*/*.cuh"))
    return {path.relative_to(SOURCES).as_posix(): rewrite(path.read_text()) for path in paths}


@cache
def others() -> list[str]:
    """Headers that are taken as they are."""
    paths = [*SOURCES.glob("*/*.h"), *SOURCES.glob("*/*.hpp"), *DRIVER.iterdir(),
             *RUNTIME.iterdir()]  # fmt: skip
    return [path.read_text() for path in sorted(paths)]


@cache
def compiler() -> str:
    """Version and machine of the compiler."""
    return platform.machine() + run_gcc("-dumpfullversion")


def digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def joined(sources: list[Path], apart: Callable[[str, str], str]) -> str:
    """One source of many, half of whose time the compiler would spend on the same headers.

    Headers come first. Names that two sources give to things of their own are kept `apart` in
    namespaces, whose names it is given.
    """
    includes, bodies = [], []
    for number, path in enumerate(sources):
        text = rewrite(path.read_text())
        includes += INCLUDE.findall(text)
        body = apart(INCLUDE.sub("", text), f"source_{number}")
        bodies.append(f'#line 1 "{path.relative_to(SOURCES.parent)}"\n{body}')
    return "\n".join([*dict.fromkeys(includes), *bodies])


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


def run_gcc(*words: str) -> str:
    # What is loaded into this process to watch it would watch the compiler too.
    environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    done = subprocess.run(
        ["g++", *words], check=True, env=environment, stdout=subprocess.PIPE, text=True
    )
    return done.stdout
