"""Versions known to be wrong with dgbench: what they do, and what to use instead.

An entry stands here because somebody met it: `source` names the thread, or says that it was
measured here. What the bounds of `pyproject.toml` already refuse has no entry; versions that
upset only what dgbench never calls have none either.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec


class FaultyVersions(msgspec.Struct, frozen=True, kw_only=True):
    """Versions of one thing that are wrong, alone or beside something else.

    Attributes:
        name: of a package as the index has it, or `python`, `nvcc` or `compute capability`.
        wrong: the versions, as alternatives; each is a specifier of PEP 440, "" for every version.
        beside: other things that must be there in such a version for it to be wrong.
        symptom: what a person sees. remedy: what to do. source: where it was found.
    """

    name: str
    wrong: tuple[str, ...]
    symptom: str
    remedy: str
    source: str
    beside: dict[str, str] = {}

    def matches(self, held: Mapping[str, str]) -> bool:
        """Return True if the installed version is a faulty one; an unreadable one is not."""
        here = held.get(self.name)
        return (
            here is not None
            and any(_within(here, versions) for versions in self.wrong)
            and all(n in held and _within(held[n], v) for n, v in self.beside.items())
        )


KNOWN: tuple[FaultyVersions, ...] = (
    FaultyVersions(
        name="python",
        wrong=("<3.10.18", ">=3.11,<3.11.13", ">=3.12,<3.12.11", ">=3.13,<3.13.4"),
        symptom="tarfile's filter 'data' lets an archive write outside its folder (CVE-2025-4517)",
        remedy="dgbench unpacks data itself and is safe; take a newer patch release before "
        "`nox -s peers`, which unpacks sources of contenders",
        source="python/cpython issue 135034",
    ),
    FaultyVersions(
        name="torch",
        wrong=("<2.10",),
        symptom="torch.load(weights_only=True) of a crafted file corrupts memory (CVE-2026-24747)",
        remedy="dgbench loads no file of others; do not load a checkpoint you did not write, or "
        "pip install 'torch>=2.10'",
        source="GitHub advisory of 2026-01-26, in NVIDIA/TensorRT-Model-Connect pull request 1298",
    ),
    FaultyVersions(
        name="dgl",
        wrong=(">=2",),
        beside={"torch": ">=2.4"},
        symptom="does not import: its GraphBolt library is built for one patch release of torch, "
        "and torchdata has lost the datapipes it asks for",
        remedy="pip install dgl==1.1.3",
        source="dmlc/dgl issues 7822 and 7891; 2.1.0 tried here",
    ),
    FaultyVersions(
        name="torch-geometric-temporal",
        wrong=("<=0.56.2",),
        symptom="EvolveGCN-O and -H keep the evolved weight and its graph from call to call: a "
        "second backward pass fails",
        remedy="dgbench starts the weight again at every frame; elsewhere call "
        "reinitialize_weight() yourself",
        source="benedekrozemberczki/pytorch_geometric_temporal issues 220 and 305; measured here",
    ),
    FaultyVersions(
        name="tglite",
        wrong=("<=0.0.2",),
        symptom="TBlock calls ctx.graph(), which is a property (TypeError); times are rounded to "
        "float32; every call draws the same numbers",
        remedy="dgbench goes around the first and counts the others in what it says of tglite",
        source="measured here",
    ),
    FaultyVersions(
        name="pyg-lib",
        wrong=("==0.4.0",),
        symptom="NeighborLoader raises at its first batch",
        remedy="take another release of pyg-lib",
        source="pyg-team/pyg-lib issue 299",
    ),
    FaultyVersions(
        name="msgspec",
        wrong=("<0.20",),
        beside={"python": ">=3.14"},
        symptom="does not support this Python",
        remedy="pip install 'msgspec>=0.20'",
        source="msgspec/msgspec issues 847 and 891",
    ),
    FaultyVersions(
        name="nanobind",
        wrong=("==2.13.0",),
        symptom="an error that crosses from Python into C++ may have no text, and whoever prints "
        "it crashes",
        remedy="pip install -U nanobind, then build the operators again",
        source="PennyLaneAI/catalyst pull request 2968",
    ),
    FaultyVersions(
        name="nvcc",
        wrong=(">=13",),
        beside={"compute capability": "<7.5"},
        symptom="cannot compile for this device: its oldest architecture is sm_75",
        remedy="build the operators with a toolkit of CUDA 12",
        source="measured here with nvcc 13.0 (a V100 is sm_70)",
    ),
)

# Extensions of torch that say in their version which torch they were compiled for: 2.1.2+pt25cu121.
EXTENSIONS = ("torch-scatter", "torch-sparse", "torch-cluster", "pyg-lib")


def wrong_here(held: Mapping[str, str]) -> Iterator[FaultyVersions]:
    """Entries that match versions, by name; extensions of another torch among them."""
    yield from (known for known in KNOWN if known.matches(held))
    torch = re.match(r"(\d+)\.(\d+)", held.get("torch", ""))
    for name in EXTENSIONS:
        built = re.search(r"\+pt(\d)(\d+)", held.get(name, ""))
        if built and torch and built.groups() != torch.groups():
            yield FaultyVersions(
                name=name,
                wrong=("",),
                symptom=f"compiled for torch {built[1]}.{built[2]}, here is {torch[0]}: "
                "'undefined symbol' at import",
                remedy=f"pip install --no-build-isolation --force-reinstall --no-deps {name}",
                source="rusty1s/pytorch_sparse issue 250",
            )


def held_versions(gpus: Sequence[dict[str, Any]] = (), nvcc: str = "") -> dict[str, str]:
    """Versions of everything an entry speaks of, as far as it is here.

    Args:
        gpus: what `machine_facts` says of them.
        nvcc: the line that the compiler prints of itself.
    """
    held = {"python": platform.python_version()}
    names = {known.name for known in KNOWN} | {n for k in KNOWN for n in k.beside}
    for name in sorted(names | set(EXTENSIONS)):
        try:
            held.setdefault(name, version(name))
        except PackageNotFoundError:
            continue
    release = re.search(r"(?:release |cuda_)(\d+\.\d+)", nvcc)
    if release:
        held["nvcc"] = release[1]
    # A counter that a driver does not offer is the reason instead of a number.
    asked = [str(gpu.get("compute_capability", "")) for gpu in gpus]
    found = [text for text in asked if re.fullmatch(r"\d+\.\d+", text)]
    if found:
        held["compute capability"] = min(found, key=float)
    return held


def _within(here: str, versions: str) -> bool:
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        # Without the local part: 2.13.0+cpu is 2.13.0 here.
        return SpecifierSet(versions).contains(Version(here).public, prereleases=True)
    except InvalidVersion:
        return False
