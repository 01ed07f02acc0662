"""Every error that dgbench raises on purpose. Each says what was found, what is allowed, and
what to do; the command line prints it without a traceback."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches


class DgbenchError(Exception):
    """A mistake or a lack that the user can act on.

    Attributes:
        hint: what to do about it, one or more lines, or "".
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class UnknownKeyError(DgbenchError):
    """A name that is not in a known set."""


class InvalidInputError(DgbenchError):
    """An argument or a file that breaks a stated rule."""


class DataError(InvalidInputError):
    """Data that cannot be read, or is not what its card says."""


class DataWarning(RuntimeWarning):
    """Data was not as it should be and has been put right; the harness keeps this in the row."""


class MissingDataError(DgbenchError):
    """Data that is not held here and may not or cannot be fetched."""


class MissingPackageError(DgbenchError):
    """An optional package that a contender needs."""


class StoreError(DgbenchError):
    """A result file that cannot be written or read."""


class UnsupportedError(DgbenchError):
    """Something a system or this machine cannot do, with the reason."""


class SignalExit(SystemExit):
    """Exit that a signal asked for; what catches the SystemExit of a plugin lets it through."""


class CheckFailed(DgbenchError):
    """A result is wrong, so its time must not be shown: the row gets the status `check`.

    Attributes:
        deviation: what was found against the reference, kept in the row.
    """

    def __init__(
        self, message: str, *, hint: str = "", deviation: Mapping[str, float] | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.deviation = dict(deviation or {})


def unknown_key(what: str, found: str, allowed: Iterable[str], *, of: str = "") -> UnknownKeyError:
    """Build the error for a misspelt name, with the nearest names suggested."""
    names = sorted(allowed)
    where = f" of {of}" if of else ""
    folded = {name.casefold(): name for name in names}
    near = [folded[one] for one in get_close_matches(found.casefold(), folded, n=3, cutoff=0.5)]
    hint = f"did you mean: {', '.join(near)}?" if near else f"known: {', '.join(names) or 'none'}"
    return UnknownKeyError(f"{what} '{found}'{where} is not known", hint=hint)
