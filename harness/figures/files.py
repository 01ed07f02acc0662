"""Figures as files: the same figure gives the same bytes."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from dgbench.harness.figures.svg import slim


def save(figure: Any, folder: Path, stem: str, flavour: str = "paper") -> list[str]:
    """Write `<stem>.svg` and `<stem>.png`, for the site the SVG only; the same figure gives the
    same bytes."""
    names = []
    formats: list[tuple[str, dict[str, Any]]] = [
        ("svg", {"metadata": {"Date": None, "Creator": None}}),
        ("png", {"dpi": 220, "metadata": {"Software": None}}),
    ]
    for kind, options in formats[:1] if flavour == "site" else formats:
        buffer = io.BytesIO()
        figure.savefig(buffer, format=kind, **options)
        name = f"{stem}.{kind}"
        data = buffer.getvalue()
        if flavour == "site":
            data = slim(data.decode("utf-8")).encode("utf-8")
        (folder / name).write_bytes(data)
        names.append(name)
    return names
