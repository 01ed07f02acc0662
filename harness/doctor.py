"""Checks of the installation: what works, what is missing, and how to fix it."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import psutil

from dgbench.runtime.errors import DgbenchError

if TYPE_CHECKING:
    from dgbench.harness.machine.known import FaultyVersions

OLDEST_TORCH = (2, 6)
FREE_BYTES = 2 * 2**30
ENOUGH_MEMORY = 4 * 2**30

CONTENDERS = {
    # module -> (how it is installed, who needs it)
    "torch_geometric_temporal": ("pip install torch-geometric-temporal", "PyG-Temporal baselines"),
    "dgl": ("pip install dgl==1.1.3", "DGL baselines"),
    "tglite": ("nox -s peers", "TGLite baseline"),
    "pymetis": ("pip install pymetis", "METIS partitions"),
    "kahypar": ("pip install kahypar", "hypergraph partitions"),
}


class DoctorCheck(msgspec.Struct, frozen=True):
    """One thing that was looked at.

    Attributes:
        name: what. state: `ok`; `warn` for what works with a drawback; `missing` for what
            does not work. found: what is here. hint: what to do, or "".
    """

    name: str
    state: Literal["ok", "warn", "missing"]
    found: str
    hint: str = ""


def diagnose() -> list[DoctorCheck]:
    """Look at everything. A look that fails is a check of its own and never an exception."""
    checks: list[DoctorCheck] = []
    looks: list[Callable[[], Any]] = [
        _python,
        _git,
        _torch,
        _geometric,
        _operators,
        _compilers,
        _gpu,
        _deprecated_pynvml,
        _contenders,
        _versions,
        _plugins,
        _data,
        _cache,
        _results,
        _memory,
        _processor,
    ]
    for look in looks:
        try:
            checks.extend(look())
        except Exception as error:  # a doctor must not fall ill
            name = look.__name__.strip("_").replace("_", " ")
            checks.append(
                DoctorCheck(name, "warn", f"could not look: {type(error).__name__}: {error}")
            )
    return checks


def healthy(checks: list[DoctorCheck]) -> bool:
    """Return True if nothing that dgbench requires is missing."""
    return not any(c.state == "missing" and c.name in NEEDED for c in checks)


NEEDED = ("python", "torch", "torch-geometric", "operators _cpu", "cache", "results")


def _python() -> Iterator[DoctorCheck]:
    found = f"{sys.version.split()[0]} at {sys.executable}"
    good = sys.version_info >= (3, 10)
    yield DoctorCheck(
        "python", "ok" if good else "missing", found, "" if good else "use 3.10 or later"
    )


def _git() -> Iterator[DoctorCheck]:
    from dgbench.harness.machine.provenance import ask_git

    _, refusal = ask_git(Path(__file__).parent, "rev-parse", "--show-toplevel")
    if refusal:
        found = "rows of this machine name no commit: git does not read the source tree"
        yield DoctorCheck("git", "warn", found, f"git says: {refusal}")


def _torch() -> Iterator[DoctorCheck]:
    try:
        import torch
    except Exception as error:
        yield DoctorCheck("torch", "missing", f"does not import: {error}", "pip install torch")
        return
    numbers = re.match(r"(\d+)\.(\d+)", torch.__version__)
    release = tuple(map(int, numbers.groups())) if numbers else (0, 0)
    built = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU only"
    found = f"{torch.__version__}, {built}, {torch.get_num_threads()} threads"
    if release >= OLDEST_TORCH:
        yield DoctorCheck("torch", "ok", found)
    else:
        yield DoctorCheck("torch", "missing", found, "pip install 'torch>=2.6'")


def _geometric() -> Iterator[DoctorCheck]:
    yield _package("torch-geometric", "torch_geometric", "pip install torch-geometric", "missing")


def _operators() -> Iterator[DoctorCheck]:
    from dgbench.kernels_cuda.build_info import build_info

    info = build_info()
    cpu, cuda = info["cpu"], info["cuda"]
    if cpu["built"]:
        found = f"vector width {cpu.get('vector', 'unknown')}, compiler {cpu.get('compiler', '?')}"
        width = cpu.get("vector") != "baseline"
        hint = "" if width else "rebuild on this machine for its vector units: pip install -e ."
        yield DoctorCheck("operators _cpu", "ok" if width else "warn", found, hint)
    else:
        hint = "build them: pip install --no-build-isolation -e ."
        yield DoctorCheck("operators _cpu", "missing", str(cpu.get("reason", "not built")), hint)
    if cuda["built"]:
        words = [f"{k} {cuda[k]}" for k in ("architectures", "compiler", "device") if cuda.get(k)]
        found = ", ".join(words) or "built"
        usable = bool(cuda.get("usable"))
        yield DoctorCheck(
            "operators _cuda", "ok" if usable else "warn", found, str(cuda.get("reason"))
        )
    else:
        yield DoctorCheck(
            "operators _cuda",
            "missing",
            f"not built: {cuda.get('reason') or 'no reason was kept'}",
            "with nvcc and a GPU they are built by pip install; DGBENCH_CUDA=all builds "
            "without a GPU",
        )


def _compilers() -> Iterator[DoctorCheck]:
    from dgbench.harness.machine.facts import compiler

    for name, needs in (("g++", "to rebuild the operators"), ("nvcc", "to build for GPUs")):
        found = compiler(name)
        if found:
            yield DoctorCheck(name, "ok", found)
        else:
            yield DoctorCheck(name, "missing", "not on PATH", f"needed only {needs}")


def _gpu() -> Iterator[DoctorCheck]:
    from dgbench.harness.probes.nvml import Nvml

    with Nvml() as nvml:
        gpus = nvml.describe()
        if not gpus:
            yield DoctorCheck(
                "gpu",
                "missing",
                nvml.reason or "NVML lists no devices",
                "all runs work on the CPU; what they say of GPU claims is weak",
            )
            return
        for number, gpu in enumerate(gpus):
            memory = gpu["memory_bytes"]
            size = f"{memory / 2**30:.0f} GiB" if isinstance(memory, int) else str(memory)
            yield DoctorCheck(
                f"gpu {number}", "ok", f"{gpu['name']}, {size}, driver {gpu['driver']}"
            )
    import torch

    if torch.version.cuda is None:
        yield DoctorCheck(
            "gpu in torch",
            "missing",
            "this torch was built without CUDA",
            "install a CUDA build of torch: https://pytorch.org/get-started",
        )


def _deprecated_pynvml() -> Iterator[DoctorCheck]:
    try:
        owner = distribution("pynvml")
    except PackageNotFoundError:
        return
    yield DoctorCheck(
        "package pynvml",
        "warn",
        f"the deprecated package pynvml {owner.version} shadows nvidia-ml-py",
        "pip uninstall pynvml && pip install --force-reinstall nvidia-ml-py",
    )


def _contenders() -> Iterator[DoctorCheck]:
    # Without it the first import of DGL prints a notice and writes ~/.dgl/config.json.
    os.environ.setdefault("DGLBACKEND", "pytorch")
    for module, (install, who) in CONTENDERS.items():
        check = _package(module.replace("_", "-"), module, f"{install} (for {who})", "missing")
        yield _temporal(check) if module == "torch_geometric_temporal" else check


def _versions() -> Iterator[DoctorCheck]:
    from dgbench.harness.machine.facts import compiler, gpu_facts
    from dgbench.harness.machine.known import KNOWN, held_versions, wrong_here

    held = held_versions(gpu_facts(), compiler("nvcc"))
    wrong: dict[str, list[FaultyVersions]] = {}
    for known in wrong_here(held):
        wrong.setdefault(known.name, []).append(known)
    for name, entries in wrong.items():
        found = "; ".join(f"{known.symptom} ({known.source})" for known in entries)
        hint = "\n".join(known.remedy for known in entries)
        yield DoctorCheck(f"version of {name}", "warn", f"{held[name]}: {found}", hint)
    if not wrong:
        yield DoctorCheck("versions", "ok", f"none of the {len(KNOWN)} known to be wrong is here")


def _plugins() -> Iterator[DoctorCheck]:
    from dgbench.harness.plugins import (
        Broken,
        describe_ahead,
        find_paper,
        find_system,
        paper_names,
        system_names,
        taken_names,
    )

    describe_ahead()

    for kind, names, find in (
        ("systems", system_names(), find_system),
        ("papers", paper_names(), find_paper),
    ):
        found = {name: find(name) for name in names}
        broken = {name: item for name, item in found.items() if isinstance(item, Broken)}
        works = ", ".join(name for name in names if name not in broken)
        yield DoctorCheck(kind, "ok" if works else "missing", works or "none load")
        for name, item in broken.items():
            hint = f"it comes from {item.origin}"
            yield DoctorCheck(f"{kind[:-1]} {name}", "missing", item.reason, hint)
    for kind, item in taken_names():
        hint = f"it comes from {item.origin}"
        yield DoctorCheck(f"{kind} {item.name}", "missing", item.reason, hint)


def _data() -> Iterator[DoctorCheck]:
    from dgbench import datasets
    from dgbench.datasets.sources.locate import data_dir, find_form

    try:
        folder = data_dir()
    except DgbenchError as error:
        yield DoctorCheck("DGBENCH_DATA", "missing", str(error), error.hint)
        return
    if folder is None:
        yield DoctorCheck(
            "DGBENCH_DATA", "warn", "not set", "set it to a folder of datasets, if any"
        )
    else:
        yield DoctorCheck("DGBENCH_DATA", "ok", str(folder))
    cards = datasets.cards()
    held = sorted(name for name, card in cards.items() if find_form(card) is not None)
    lacking = len(cards) - len(held)
    yield DoctorCheck(
        "datasets",
        "ok" if held else "warn",
        f"{len(held)} of {len(cards)} held: {', '.join(held) or 'none'}",
        f"{lacking} have a synthetic twin or can be fetched: dgbench data list" if lacking else "",
    )


def _cache() -> Iterator[DoctorCheck]:
    from dgbench.datasets.store import cache_root

    yield _folder("cache", cache_root(), "DGBENCH_CACHE")


def _results() -> Iterator[DoctorCheck]:
    from dgbench.harness.store import runs_root

    yield _folder("results", runs_root().absolute(), "DGBENCH_RESULTS")


def _memory() -> Iterator[DoctorCheck]:
    from dgbench.runtime.memory import available_memory, memory_limit

    free, total = available_memory(), memory_limit()
    found = f"{free / 2**30:.1f} of {total / 2**30:.1f} GiB free"
    enough = free >= ENOUGH_MEMORY
    yield DoctorCheck(
        "memory", "ok" if enough else "warn", found, "" if enough else "close something"
    )


def _processor() -> Iterator[DoctorCheck]:
    from dgbench.harness.machine.facts import cpu_facts

    cpu = cpu_facts()
    found = f"{cpu['model']}, {cpu['usable']} usable cores, {' '.join(cpu['flags']) or 'no AVX'}"
    yield DoctorCheck("cpu", "ok", f"{found}, governor {cpu['governor']}")
    if not hasattr(os, "getloadavg"):
        return
    load = os.getloadavg()[0]
    busy = load > 0.5 * cpu["usable"]
    hint = "other processes disturb the clock; ratios still hold, with wider intervals"
    yield DoctorCheck(
        "load", "warn" if busy else "ok", f"{load:.2f} over 1 min", hint if busy else ""
    )


def _package(
    name: str, module: str, install: str, state: Literal["warn", "missing"]
) -> DoctorCheck:
    try:
        held = version(name)
    except PackageNotFoundError:
        held = ""
    try:
        importlib.import_module(module)
    except Exception as error:  # compiled packages fail to import in many ways
        if not held:
            return DoctorCheck(name, state, "not installed", install)
        text = " ".join(str(error).split())[:160]
        return DoctorCheck(
            name, state, f"{held} does not import: {type(error).__name__}: {text}", install
        )
    return DoctorCheck(name, "ok", held or "version unknown")


def _temporal(check: DoctorCheck) -> DoctorCheck:
    """The released package needs torch-sparse to import; its cells need it only in part."""
    if check.state == "ok" or "torch_sparse" not in check.found:
        return check
    hint = "its recurrent cells are loaded one by one instead; nothing to do"
    return DoctorCheck(check.name, "warn", check.found, hint)


def _folder(name: str, path: Path, variable: str) -> DoctorCheck:
    there = path
    while not there.exists() and there != there.parent:
        there = there.parent
    hint = f"set {variable} to a folder that can be written"
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        return DoctorCheck(name, "missing", f"{path} cannot be written", hint)
    free = shutil.disk_usage(there).free
    found = f"{path}, {free / 2**30:.1f} GiB free"
    if free < FREE_BYTES:
        return DoctorCheck(name, "warn", found, f"free some space, or {hint}")
    if psutil.WINDOWS:
        return DoctorCheck(name, "warn", found, "only Linux and macOS are supported")
    return DoctorCheck(name, "ok", found)
