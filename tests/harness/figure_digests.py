"""Digests of figures, drawn in this process or in another: python figure_digests.py FOLDER."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import fake_points

from dgbench.harness.figures import Context, draw_points

CONTEXT = Context(machine="2x Xeon (invented)", run="0a1b2c3d", noise=0.035)


def draw_some(out: Path) -> list[str]:
    """Digests of several kinds of figures, one line each."""
    for kind in ("speedup", "sweep", "frontier", "claim_board"):
        make, options = fake_points.POINTS[kind]
        for flavour in ("paper", "site"):
            draw_points(
                kind, kind, "t", make(), out / flavour, CONTEXT, options,
                flavour=flavour, widths=("half",),
            )  # fmt: skip
    return [
        f"{path.relative_to(out)} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        for path in sorted(out.rglob("*.*"))
    ]


if __name__ == "__main__":
    print(*draw_some(Path(sys.argv[1])), sep="\n")
