#!/usr/bin/env python3
"""Print the part of CHANGELOG.md that is about one version: scripts/release_notes.py VERSION.

Ends with 2 where the changelog has no heading for the version, or pyproject.toml another version.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def notes(changelog: str, version: str) -> str:
    """Lines between the heading of a version and the next one of its level; "" without one."""
    found = re.search(
        rf"^## \[?v?{re.escape(version)}\]?(?![\w.]).*\n((?:(?!^## ).*\n?)*)", changelog, re.M
    )
    return found[1].strip() if found else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if len(given) != 1:
        print("error: give one version, such as 0.1.0", file=sys.stderr)
        return 2
    version = given[0]
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    own = re.search(r'^version = "([^"]+)"$', project, re.M)
    if own is None or own[1] != version:
        print(f"error: pyproject.toml has another version than {version}", file=sys.stderr)
        return 2
    text = notes((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    if not text:
        print(f"error: CHANGELOG.md has no heading for {version}", file=sys.stderr)
        return 2
    print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
