"""Commits of a git repository, by git itself."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from dgbench.harness.machine.provenance import ask_git
from dgbench.runtime.errors import DgbenchError, InvalidInputError, UnknownKeyError

_SCRATCH = "checkout-"


@dataclass(frozen=True, slots=True)
class Revision:
    """A commit: its hash, the hash of its files, and the first line of its message."""

    sha: str
    tree: str
    subject: str

    @property
    def short(self) -> str:
        """The first nine digits of its hash."""
        return self.sha[:9]

    def __str__(self) -> str:
        return f"{self.short} ({self.subject})" if self.subject else self.short


class Repository:
    """The git repository that holds a folder.

    Raises:
        DgbenchError: git is not installed, or the folder is in no repository.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.top = folder or Path()
        if shutil.which("git") is None:
            raise DgbenchError("commits are read with git, and git is not installed here")
        top, refusal = ask_git(self.top, "rev-parse", "--show-toplevel")
        if refusal:
            raise DgbenchError(f"git does not read '{self.top.resolve()}'", hint=refusal)
        if not top:
            raise DgbenchError(
                f"'{self.top.resolve()}' is in no git repository",
                hint="commits are raced from a clone: change into it first",
            )
        self.top = Path(top)

    @property
    def dirty(self) -> bool:
        """True if tracked files have changes that no commit holds."""
        return bool(self._git("status", "--porcelain", "--untracked-files=no"))

    def revision(self, name: str) -> Revision:
        """The commit of a name. Raises UnknownKeyError where git knows none."""
        # A name with a dash in front would be an option.
        asked = ["rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"]
        sha = self._git(*asked, check=False) if name.strip() else ""
        if not sha:
            raise UnknownKeyError(
                f"revision '{name}' is not known in {self.top}",
                hint="a commit, a branch or a tag that `git log` shows; fetch it first",
            )
        tree, subject = self._git("show", "--no-patch", "--format=%T%n%s", sha).split("\n", 1)
        return Revision(sha, tree, subject)

    def two(self, first: str, second: str) -> tuple[Revision, Revision]:
        """Two commits. Raises InvalidInputError where they hold the same files."""
        a, b = self.revision(first), self.revision(second)
        if a.tree == b.tree:
            same = "the same commit" if a.sha == b.sha else "commits of the same files"
            raise InvalidInputError(
                f"'{first}' and '{second}' are {same}, {a.short}", hint="name two that differ"
            )
        return a, b

    def between(self, good: Revision, bad: Revision) -> list[Revision]:
        """Commits after `good` up to `bad`, oldest first, along first parents.

        Raises:
            InvalidInputError: `good` is no ancestor of `bad`.
        """
        chain = self._git("rev-list", "--first-parent", bad.sha).split()
        if good.sha not in chain:
            raise InvalidInputError(
                f"{good} does not lead to {bad} along first parents",
                hint="GOOD is the earlier one of a single line of commits",
            )
        return [self.revision(sha) for sha in reversed(chain[: chain.index(good.sha)])]

    def files(self, revision: Revision) -> dict[str, str]:
        """Path -> hash of what it holds, of every file of a commit."""
        found = {}
        for line in self._git("ls-tree", "-r", "-z", revision.sha).split("\0"):
            if line:
                facts, _, path = line.partition("\t")
                found[path] = facts.split()[2]
        return found

    def read(self, revision: Revision, path: str) -> str:
        """Text of a file of a commit."""
        return self._git("show", f"{revision.sha}:{path}")

    @contextlib.contextmanager
    def checkout(self, revision: Revision, scratch: Path) -> Iterator[Path]:
        """The files of a commit in a folder below `scratch`, removed afterwards.

        What a killed process left there is removed first: a checkout is locked while it is used.
        """
        scratch.mkdir(parents=True, exist_ok=True)
        self._sweep(scratch)
        place = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=scratch))
        with FileLock(f"{place}.lock"):
            try:
                tree = place / "tree"
                self._git("worktree", "add", "--detach", "--quiet", str(tree), revision.sha)
                yield tree
            finally:
                self._drop(place)

    def _sweep(self, scratch: Path) -> None:
        for place in scratch.glob(f"{_SCRATCH}*"):
            if place.is_dir():
                with contextlib.suppress(Timeout, OSError), FileLock(f"{place}.lock", timeout=0):
                    self._drop(place)

    def _drop(self, place: Path) -> None:
        """Remove a checkout that this process has the lock of."""
        shutil.rmtree(place, ignore_errors=True)
        Path(f"{place}.lock").unlink(missing_ok=True)
        self._git("worktree", "prune", check=False)

    def _git(self, *arguments: str, check: bool = True) -> str:
        """Output of git without the last line break; "" where it fails and need not succeed."""
        done = subprocess.run(
            ["git", *arguments], cwd=self.top, capture_output=True, text=True, errors="replace"
        )
        if done.returncode and check:
            raise DgbenchError(f"git {arguments[0]} failed: {done.stderr.strip()}")
        return "" if done.returncode else done.stdout.rstrip("\n")
