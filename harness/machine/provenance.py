"""Where rows come from: code, packages, machine, settings, environment."""

from __future__ import annotations

import os
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import dgbench
from dgbench.harness.machine.facts import machine_facts
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

_SOURCES = (".py", ".cpp", ".hpp", ".h", ".cu", ".cuh", ".j2", ".yaml", ".toml")


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
    `DGBENCH_COMMIT` states goes before it. A tree counts as changed by sources that git does not
    track, and where git cannot say.
    """
    here = Path(__file__).resolve().parent
    top, refusal = ask_git(here, "rev-parse", "--show-toplevel")
    own = bool(top) and (Path(top) / "pyproject.toml").is_file()
    stated = os.environ.get("DGBENCH_COMMIT", "").strip()
    if stated and not (own and ask_git(here, "ls-files", Path(__file__).name)[0]):
        note = "installed package; the commit is that of DGBENCH_COMMIT"
        return {"commit": stated, "dirty": None, "note": note}
    if not own:
        note = f"git refuses the tree: {refusal}" if refusal else "installed package, no git tree"
        return {"commit": "", "dirty": None, "note": note}
    commit = ask_git(here, "rev-parse", "HEAD")[0]
    status, failure = ask_git(Path(top), "status", "--porcelain", "--untracked-files=all")
    if failure:
        return {"commit": commit, "dirty": True, "note": f"git status failed: {failure}"}
    lines = [line.rstrip('"') for line in status.splitlines()]
    return {
        "commit": commit,
        "dirty": any(not line.startswith("??") or line.endswith(_SOURCES) for line in lines),
    }


def ask_git(folder: Path, *words: str) -> tuple[str, str]:
    """Output of a git command in a folder, and git's words where it fails.

    Both are empty where there is no git, or no repository.
    """
    try:
        done = subprocess.run(
            ["git", *words], cwd=folder, capture_output=True, text=True, errors="replace",
            timeout=10, check=False, env=os.environ | {"LC_ALL": "C"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "", "it took longer than 10 s"
    except OSError:
        return "", ""
    if done.returncode == 0:
        return done.stdout.rstrip("\n"), ""
    none = "not a git repository" in done.stderr
    return "", "" if none else " ".join(done.stderr.split()) or f"exit code {done.returncode}"
