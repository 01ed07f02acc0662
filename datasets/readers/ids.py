"""Ids as they are written: which texts are one whole number, which are names, which are missing.

A decimal whole number is the same id however it is written: `7`, ` 7 `, `+7`, `007`, `7.0`, `7e0`.
Where names are read, a text is the name, without the blanks around it.
"""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np

from dgbench.datasets.readers.times import MAX_EXACT, Fault

_DIGITS: Final = re.compile(r"[+-]?[0-9]+")
_DECIMAL: Final = re.compile(r"([+-]?)([0-9]*)\.?([0-9]*)(?:[eE]([+-]?[0-9]{1,9}))?")
_INT64: Final = np.iinfo(np.int64)
MISSING: Final = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("N/A", "NA", "NULL", "NaN", "n/a", "nan", "null", "Null", "NAN", "NaT", "None", "none"),
    *("<NA>", r"\N"),
)
"""Texts without quotes that stand for a missing value in tables of text."""
_NO_NAME: Final = ("", "nan", "NaN", "NaT", "None", "<NA>")
"""A missing value turned into a text by numpy or pandas; never a name."""
_WRITTEN_NUMBER: Final = r"^\+?[0-9]+(\.0*)?$"


def whole_number(text: str) -> int:
    """The whole number that a text writes. ValueError, with what is wrong, where it writes none."""
    text = text.strip()
    if _DIGITS.fullmatch(text):
        if len(text) > 400:
            raise ValueError("does not fit int64")
        found = int(text)
    else:
        found = _of_decimal(text)
    if not _INT64.min <= found <= _INT64.max:
        raise ValueError("does not fit int64")
    return found


def _of_decimal(text: str) -> int:
    """The whole number that a text with a point or an exponent writes."""
    match = _DECIMAL.fullmatch(text)
    digits = match[2] + match[3] if match else ""
    if match is None or not digits:
        raise ValueError("is no decimal whole number")
    shift = int(match[4] or 0) - len(match[3])  # the value is `digits` times 10 ** shift
    digits = digits.lstrip("0")
    if not digits:
        return 0
    kept = digits.rstrip("0")
    shift += len(digits) - len(kept)
    if shift < 0:
        raise ValueError("is no decimal whole number")
    if len(kept) + shift > 16 or int(kept) * 10**shift > MAX_EXACT:
        raise ValueError("is written as a float, and beyond 2**53 floats merge whole numbers")
    return int(match[1] + kept) * 10**shift


def is_whole(text: str) -> bool:
    """Return True if a text writes a whole number."""
    try:
        whole_number(text)
    except ValueError:
        return False
    return True


def whole_numbers(column: Any, fault: Fault, role: str) -> np.ndarray:
    """int64[E] of a column of texts. DataError for the first one that is no whole number."""
    places, texts = encoded(column.chunks)
    numbers = np.zeros(len(texts), np.int64)
    for place, text in enumerate(texts.to_pylist()):
        try:
            numbers[place] = whole_number(text)
        except ValueError as error:
            row = int((places == place).argmax())
            way = "; --ids names reads names" if role in ("src", "dst") else ""
            raise fault(row, f"the column `{role}`: {text[:60]!r} {error}{way}") from None
    return numbers[places]


def names(column: Any, fault: Fault, role: str) -> Any:
    """A column of names without blanks around them. DataError for the first one that is missing."""
    import pyarrow as pa
    from pyarrow import compute

    trimmed = compute.utf8_trim_whitespace(column)
    padded = compute.fill_null(compute.not_equal(trimmed, column), False)
    # arrow takes quotes after a blank for a part of the name
    quoted = compute.and_(padded, compute.match_substring_regex(trimmed, '^".*"$'))
    if compute.any(quoted).as_py():
        inner = compute.utf8_slice_codeunits(trimmed, 1, -1)
        trimmed = compute.if_else(quoted, compute.replace_substring(inner, '""', '"'), trimmed)
    lacking = compute.or_(
        compute.is_in(trimmed, pa.array((*_NO_NAME, None), trimmed.type)),
        compute.and_(padded, compute.is_in(trimmed, pa.array(MISSING, trimmed.type))),
    )
    if compute.any(lacking).as_py():
        row = int(lacking.to_numpy().argmax())
        text = column[row].as_py()
        said = f": {text!r} is no name" if text else ""
        raise fault(row, f"the column `{role}` is empty{said}")
    return trimmed


def encoded(chunks: list[Any]) -> tuple[np.ndarray, Any]:
    """Numbers of texts in order of appearance, int64[E], and the distinct texts."""
    import pyarrow as pa

    if not chunks:  # an empty table
        return np.zeros(0, np.int64), pa.array([], pa.string())
    coded = pa.chunked_array(chunks).combine_chunks().dictionary_encode()
    coded = coded.combine_chunks() if hasattr(coded, "combine_chunks") else coded
    return coded.indices.to_numpy().astype(np.int64), coded.dictionary


def twice_written(keys: Any) -> tuple[str, ...]:
    """A note where two names write the same number, as `3` and `3.0` do; else nothing."""
    from pyarrow import compute

    written = keys.filter(compute.match_substring_regex(keys, _WRITTEN_NUMBER)).to_pylist()
    seen: dict[str, str] = {}
    for name in written:
        number = name.lstrip("+").partition(".")[0].lstrip("0")
        if (other := seen.setdefault(number, name)) != name:
            return (f"'{other}' and '{name}' are two names and two vertices, and one number",)
    return ()
