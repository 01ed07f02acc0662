"""Where rows come from: code, packages, machine, settings, environment."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import dgbench
from dgbench.harness.machine.facts import machine_facts, run_line
from dgbench.kernels_cuda.build_info import build_info

PACKAGES = (
    "torch",
    "torch-geometric",
    "torch-geometric-temporal",
    "numpy",
    "scipy",
    "dgl",
    "tglite",
    "pymetis",
    "kahypar",
    "nvidia-ml-py",
    "psutil",
)

VARIABLES = (
    "OMP_NUM_THREADS",
    "OMP_PROC_BIND",
    "OMP_WAIT_POLICY",
    "KMP_AFFINITY",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_LAUNCH_BLOCKING",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "PYTHONHASHSEED",
    "LD_PRELOAD",
    "MALLOC_ARENA_MAX",
    "GLIBC_TUNABLES",
    "DGBENCH_CUDA",
)


def provenance(settings: dict[str, Any]) -> dict[str, Any]:
    """Facts a reader needs to believe a row, or to get it again.

    Args:
        settings: of the run (preset, device, threads ...), kept as given.
    """
    return {
        "dgbench": dgbench.__version__,
        "code": code_version(),
        "operators": {"vector": build_info()["cpu"].get("vector", "")},
        "packages": packages(),
        "machine": machine_facts(),
        "settings": settings,
        "environment": {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }


def packages() -> dict[str, str]:
    """Versions of the packages that matter; those that are missing are left out."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def code_version() -> dict[str, Any]:
    """Commit of the source tree and whether it was changed; says so where there is no tree.

    A package that is installed within a tree may be of another commit than the tree: what
    `DGBENCH_COMMIT` states goes before it.
    """
    here = Path(__file__).resolve().parent
    top = run_line(["git", "rev-parse", "--show-toplevel"], cwd=here)
    own = bool(top) and (Path(top) / "pyproject.toml").is_file()
    stated = os.environ.get("DGBENCH_COMMIT", "").strip()
    if stated and not (own and run_line(["git", "ls-files", Path(__file__).name], cwd=here)):
        note = "installed package; the commit is that of DGBENCH_COMMIT"
        return {"commit": stated, "dirty": None, "note": note}
    if not own:
        return {"commit": "", "dirty": None, "note": "installed package, no git tree"}
    dirty = run_line(["git", "status", "--porcelain", "--untracked-files=no"], whole=True, cwd=here)
    return {
        "commit": run_line(["git", "rev-parse", "HEAD"], cwd=here),
        "dirty": bool(dirty.strip()),
    }
