"""Messages on a run's data: downloads as they arrive, then the source of each dataset."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from dgbench.harness.terminal.text import wrapped

if TYPE_CHECKING:
    from dgbench.datasets.first_use import DatasetSource


class DownloadBar:
    """Progress of a download on stderr: one line redrawn on a terminal, else one line a file."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._shown = 0.0
        self._file = ""

    def update(self, file: str, done: int, total: int | None) -> None:
        """Say how far a file is; at most ten times a second."""
        now = time.monotonic()
        if file != self._file:
            self.close()
            self._file = file
            if not self._live:
                size = "" if total is None else f" ({total:,} bytes)"
                print(f"fetching {file}{size}", file=sys.stderr)
        if self._live and (now - self._shown > 0.1 or done == total):
            self._shown = now
            share = f"{100 * done / total:5.1f} %" if total else "       "
            line = f"\rfetching {Path(file).name[:40]:40} {share} {done / 1e6:10.1f} MB"
            print(line, end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        """End the line that is being redrawn."""
        if self._live and self._file:
            print(file=sys.stderr)
        self._file = ""


def sources_text(sources: Iterable[DatasetSource]) -> str:
    """Where a run's datasets come from: a paragraph of real ones, one of twins, one of missing.

    Datasets with the same cause share its words.
    """
    groups: dict[str, dict[str, list[DatasetSource]]] = defaultdict(lambda: defaultdict(list))
    for source in sources:
        kind = "real data" if source.real else source.source
        groups[kind][source.source if source.real else source.reason].append(source)
    lines = []
    for kind in ("real data", "twin", "missing"):
        said = [
            f"{', '.join(s.name for s in members)} ({_cause(members)})"
            for members in groups[kind].values()
        ]
        if said:
            lines.append(wrapped(f"{kind}: {'; '.join(said)}", " " * 6))
    return "\n".join(lines)


def _cause(members: list[DatasetSource]) -> str:
    if members[0].real:
        return members[0].source
    hosts = ", ".join(dict.fromkeys(host for source in members for host in source.hosts))
    return f"{hosts}: {members[0].reason}" if hosts else members[0].reason
