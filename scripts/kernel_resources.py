"""Registers, spills, stack and shared memory of every CUDA kernel, as the compiler says them.

Usage: python scripts/kernel_resources.py [--arch sm_90] [--out FILE] [--files PART ...] [--spills]

Needs nvcc, no device. Each *.cu of kernels_cuda is compiled once more for one architecture with
`-Xptxas -v`; nothing is kept of it but what the assembler says. One JSON line a kernel goes to
--out, a table to standard output, which ends with how many kernels spill.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from dgbench.systems.operators.ceilings.kernels import nvcc

SOURCES = Path(__file__).resolve().parents[1] / "kernels_cuda"


@dataclass(frozen=True)
class Resources:
    """Resources of one kernel.

    Attributes:
        kernel: its name, with template arguments where it could be demangled.
        file, arch: where it stands, what it was compiled for.
        registers: of a thread. stack, spill_stores, spill_loads: bytes of a thread.
        shared: bytes of a block that are known when compiling.
    """

    kernel: str
    file: str
    arch: str
    registers: int
    stack: int
    spill_stores: int
    spill_loads: int
    shared: int


def parse(text: str, file: str = "") -> Iterator[Resources]:
    """Read what ptxas says with -v."""
    name = arch = ""
    stack = stores = loads = 0
    for line in text.splitlines():
        if found := re.search(r"Compiling entry function '([^']+)' for '(\w+)'", line):
            name, arch = found.groups()
            stack = stores = loads = 0
        elif found := re.search(
            r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line
        ):
            stack, stores, loads = map(int, found.groups())
        elif (found := re.search(r"Used (\d+) registers", line)) and name:
            shared = re.search(r"(\d+) bytes smem", line)
            yield Resources(name, file, arch, int(found[1]), stack, stores, loads,
                            int(shared[1]) if shared else 0)  # fmt: skip
            name = ""


def compile_one(path: Path, arch: str, compiler: str) -> list[Resources]:
    """Kernels of one file.

    Raises:
        RuntimeError: it does not compile; with the last line of why.
    """
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run(
            [compiler, f"-arch={arch}", "-O3", "-std=c++17", "-I", str(SOURCES), "-Xptxas", "-v",
             "-cubin", "-o", str(Path(scratch) / "a.cubin"), str(path)],
            capture_output=True, text=True,
        )  # fmt: skip
    said = done.stderr + done.stdout
    if done.returncode:
        last_line = (said.strip().splitlines() or ["nvcc failed"])[-1]
        raise RuntimeError(f"{path.relative_to(SOURCES)}: {last_line}")
    return list(parse(said, str(path.relative_to(SOURCES))))


def readable(found: list[Resources]) -> list[Resources]:
    """The same with demangled names, where a tool for it is here."""
    tool = shutil.which("cu++filt") or shutil.which("c++filt")
    if not tool or not found:
        return found
    done = subprocess.run(
        [tool], input="\n".join(one.kernel for one in found), capture_output=True, text=True
    )
    names = done.stdout.splitlines()
    if done.returncode or len(names) != len(found):
        return found
    return [replace(one, kernel=short(name)) for one, name in zip(found, names, strict=True)]


def short(name: str) -> str:
    """`void space::kernel<int, 4>(float const*, ...)` as `kernel<int, 4>`."""
    name = re.sub(r"\(anonymous namespace\)::", "", name)
    depth = 0
    for place, letter in enumerate(name):
        depth += {"<": 1, ">": -1}.get(letter, 0)
        if letter == "(" and depth == 0:
            name = name[:place]
            break
    name = name.removeprefix("void ")
    head, angle, rest = name.partition("<")
    return head.rpartition("::")[2] + angle + rest


def resources(arch: str, files: list[str] | None = None, jobs: int = 0) -> list[Resources]:
    """Every kernel of the operators for one architecture.

    Raises:
        RuntimeError: there is no nvcc, or a file does not compile.
    """
    compiler = nvcc()
    if not compiler:
        raise RuntimeError("no nvcc here")
    wanted = sorted(
        path for path in SOURCES.glob("*/*.cu")
        if not files or any(part in str(path.relative_to(SOURCES)) for part in files)
    )  # fmt: skip
    with ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:
        found = pool.map(lambda path: compile_one(path, arch, compiler), wanted)
        return readable([one for kernels in found for one in kernels])


def main() -> int:
    """Print the table; 1 where a kernel spills and that was asked about."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--out", help="file for the rows, one JSON a line")
    parser.add_argument("--files", nargs="*", help="only files with one of these in their path")
    parser.add_argument("--jobs", type=int, default=0, help="compilers at once")
    parser.add_argument("--spills", action="store_true", help="exit 1 where a kernel spills")
    options = parser.parse_args()
    try:
        found = resources(options.arch, options.files, options.jobs)
    except RuntimeError as error:
        print(f"not compiled: {error}")
        return 0 if "no nvcc" in str(error) else 1
    if options.out:
        with open(options.out, "a") as file:
            for one in found:
                file.write(json.dumps({"what": "kernel", **asdict(one)}) + "\n")
    print(
        f"{'kernel':60}{'file':28}{'registers':>10}{'spilled B':>10}{'stack B':>9}{'shared B':>9}"
    )
    for one in sorted(found, key=lambda one: (one.file, one.kernel)):
        print(f"{one.kernel[:58]:60}{one.file:28}{one.registers:10}{one.spill_stores:10}"
              f"{one.stack:9}{one.shared:9}")  # fmt: skip
    spilled = [one for one in found if one.spill_stores or one.spill_loads]
    print(f"{len(found)} kernels for {options.arch}, {len(spilled)} of them spill")
    return 1 if spilled and options.spills else 0


if __name__ == "__main__":
    sys.exit(main())
