"""Packages built from commits, kept in the cache by the hash of what they are built from.

A commit is installed into a folder of its own, with its entry points, and nothing of it touches the
environment. Compiled modules are kept by the hash of their sources: a commit that changes none of
them is installed with those of another, and nothing compiles.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import msgspec
from filelock import FileLock

from dgbench.datasets.store import cache_root
from dgbench.harness.track.revisions import Repository, Revision
from dgbench.runtime.errors import DgbenchError

SOURCES: Final = (".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".cmake", "CMakeLists.txt")
"""Ends of the names of files that are compiled, or say how."""
COMPILED: Final = ("*.so", "*.pyd", "_cuda_build.json")
"""Files of an installed package that compiling makes."""
BUILD_TABLES: Final = ("[build-system]", "[tool.scikit-build")
"""Tables of pyproject.toml that say how sources are compiled."""
VARIABLES: Final = ("CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS", "DGBENCH_AVX2",
                    "DGBENCH_CUDA", "DGBENCH_PORTABLE", "CMAKE_ARGS")  # fmt: skip
MAX_KEPT: Final = 24
"""Builds that are kept; the ones that were used last."""


class BuildFailed(DgbenchError):
    """A commit that cannot be built or run, with the reason in one line."""

    def __init__(self, revision: Revision, reason: str, *, hint: str = "") -> None:
        super().__init__(f"{revision} {reason}", hint=hint)
        self.revision = revision


@dataclass(frozen=True, slots=True)
class Build:
    """A commit, and the folder that `import` finds it in."""

    revision: Revision
    path: Path


class Builder:
    """Builder of commits, with a cache.

    Attributes:
        installed: commits that were installed. compiled: of these, the ones that were compiled.
    """

    def __init__(
        self,
        repository: Repository,
        cache: Path | None = None,
        note: Callable[[str], object] = lambda text: None,
    ) -> None:
        self.repository, self.note = repository, note
        self.cache = cache or cache_root() / "track"
        self.installed = self.compiled = 0

    def __call__(self, revision: Revision) -> Build:
        """The build of a commit. Raises BuildFailed where it does not build."""
        whole = self.cache / "builds" / _digest(_surroundings(), revision.tree)
        whole.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{whole}.lock"):
            if not whole.is_dir():
                self._install(revision, whole)
            os.utime(whole)
        self._forget(whole.parent)
        return Build(revision, whole)

    def _install(self, revision: Revision, whole: Path) -> None:
        files = self.repository.files(revision)
        sources = sorted((p, blob) for p, blob in files.items() if p.endswith(SOURCES))
        how = _tables(self.repository, revision) if "pyproject.toml" in files else ""
        kernels = self.cache / "kernels" / _digest(_surroundings(), sources, how)
        kernels.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{kernels}.lock"):
            compiling = bool(sources) and not kernels.is_dir()
            self.note(f"{'compiling' if compiling else 'installing'} {revision}")
            part = whole.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            try:
                with self.repository.checkout(revision, self.cache / "checkouts") as tree:
                    _pip(revision, tree, part, compiled=compiling or not sources)
                if compiling:
                    _copy_compiled(part, kernels)
                elif sources:
                    _copy_compiled(kernels, part)
                part.rename(whole)
            finally:
                shutil.rmtree(part, ignore_errors=True)
        self.installed += 1
        self.compiled += compiling

    def _forget(self, folder: Path) -> None:
        """Remove builds beyond `MAX_KEPT` that nobody has used for longest."""
        builds = [p for p in folder.iterdir() if p.is_dir() and not p.suffix]
        for old in sorted(builds, key=lambda p: p.stat().st_mtime)[:-MAX_KEPT]:
            shutil.rmtree(old, ignore_errors=True)


def _pip(revision: Revision, tree: Path, target: Path, *, compiled: bool) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    command = [*pip, "--no-deps", "--no-build-isolation", "--target", str(target), str(tree)]
    if not compiled:
        command.append("--config-settings=wheel.cmake=false")
    # A session of its own, so that compilers end with it, whoever stops us.
    with subprocess.Popen(
        command, cwd=tree, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    ) as process:
        try:
            output, _ = process.communicate()
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode or not target.is_dir():
        lines = output.decode(errors="replace").splitlines()
        said = [line.strip() for line in lines if line.strip()] or ["pip said nothing"]
        # Lines that begin with the word are pip's own; a compiler's names a file first.
        wrong = [line for line in said if line.casefold().find("error") > 0] or said
        raise BuildFailed(revision, f"does not build: {wrong[0][:300]}")


def _copy_compiled(source: Path, target: Path) -> None:
    """Copy compiled files to the same places below `target`; all of them, or none is left."""
    part = target if target.is_dir() else target.with_suffix(".part")
    if part is not target:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
    for pattern in COMPILED:
        for file in source.rglob(pattern):
            place = part / file.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, place)
    if part is not target:
        part.rename(target)


def _tables(repository: Repository, revision: Revision) -> str:
    """The lines of pyproject.toml that say how sources are compiled."""
    kept, inside = [], False
    for line in repository.read(revision, "pyproject.toml").splitlines():
        if line.startswith("["):
            inside = line.startswith(BUILD_TABLES)
        if inside:
            kept.append(line)
    return "\n".join(kept)


def _surroundings() -> list[str]:
    """Interpreter, machine, torch and compilers: what else decides how sources compile."""
    try:
        torch = version("torch")
    except PackageNotFoundError:
        torch = ""
    variables = [f"{name}={os.environ.get(name, '')}" for name in VARIABLES]
    return [sys.version, sys.prefix, platform.machine(), torch, *variables,
            str(shutil.which("nvcc"))]  # fmt: skip


def _digest(*parts: object) -> str:
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:20]
