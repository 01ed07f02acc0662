"""Text of a plugin as it may stand in a row, so that every terminal and page can show it."""

from __future__ import annotations

import re
from typing import Final

LETTERS: Final = 2000
"""Most letters of one reason or note."""

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def readable(text: str, letters: int = LETTERS) -> str:
    """`text` without colours, control letters and halves of letters, at most so long.

    Line breaks and tabs stay. What is left out of the middle is said.
    """
    short = len(text) <= 4 * letters  # or cleaning a hundred megabytes would take minutes
    clean = text if short else text[: 2 * letters] + text[-2 * letters :]
    clean = _CONTROLS.sub("\ufffd", _ESCAPES.sub("", clean))
    clean = clean.encode("utf-8", "replace").decode()
    if short and len(clean) <= letters:
        return clean
    half = (letters - 40) // 2  # room for the words, so that nothing is cut twice
    return f"{clean[:half]} ... ({len(text):,} letters) ... {clean[-half:]}"


def message(error: BaseException) -> str:
    """One-line message of an exception, or its type where it is empty or raises itself."""
    try:
        text = " ".join(readable(str(error), LETTERS // 2).split())
    except Exception:  # a plugin's own exception class
        text = ""
    return text or type(error).__name__


def describe(error: BaseException) -> str:
    """Type and message of an exception, on one line."""
    name, text = type(error).__name__, message(error)
    return name if name == text else f"{name}: {text}"
