"""Values of options, checked where the command line is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer


def path_option(flag: str, about: str, **more: Any) -> Any:
    """An option that is a path. Empty words are refused: they would mean the current folder."""
    return typer.Option(None, flag, help=about, parser=_parser(flag), **more)


def path_argument(name: str, about: str) -> Any:
    """A required argument that is a path."""
    return typer.Argument(..., help=about, parser=_parser(name))


def refuse_empty(flag: str, value: str | None, allowed: str) -> None:
    """Raise InvalidInputError for words that say nothing; None means that they were not given."""
    from dgbench.runtime.errors import InvalidInputError

    if value is not None and not value.strip():
        raise InvalidInputError(f"{flag} is '{value}', allowed: {allowed}")


def _parser(flag: str) -> Any:
    def path(value: str) -> Path:
        if isinstance(value, str):
            refuse_empty(flag, value, "a path that is not empty ('.' is the current folder)")
        return Path(value)

    return path
