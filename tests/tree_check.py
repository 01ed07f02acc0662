"""Files that a test run leaves in the working tree."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_TOOLS: Final = {
    ".git", ".nox", ".venv", ".venv-ci", ".asv", ".pytest_cache", ".hypothesis", ".ruff_cache",
    ".mypy_cache", ".benchmarks", ".coverage", ".idea", ".vscode", "__pycache__",
}  # fmt: skip
_ELSEWHERE: Final = {"build", "dist", "results/runs"}
"""Folders that git ignores: runs and builds may go on beside the tests."""


def left_entries(root: Path) -> set[str]:
    """Entries that a test may leave: hidden ones anywhere, all of results/, all at the top.

    Sources are not among them: who tests may write one meanwhile. Of a folder only its own name is
    given where it is hidden. Folders of tools and what git ignores are left out.
    """
    found = set()
    for folder, folders, files in os.walk(root):
        where = Path(folder).relative_to(root)
        for name in [*folders, *files]:
            path = (where / name).as_posix()
            if name in _TOOLS or path in _ELSEWHERE or name.endswith((".egg-info", ".swp")):
                continue
            if name.startswith(".") or len(where.parts) == 0 or where.parts[0] == "results":
                found.add(path)
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".") and name not in _TOOLS
            and (where / name).as_posix() not in _ELSEWHERE
        ]  # fmt: skip
    return found
