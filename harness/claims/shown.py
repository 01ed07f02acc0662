"""Values in few characters, as tables and sentences of claims show them."""

from __future__ import annotations

import math
from typing import Any


def number_of(value: Any) -> float | None:
    """The value as a float where it is a number, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


def show(value: Any, unit: str | None = None, *, printed: bool = False) -> str:
    """A value in few characters: `2.1x`, `38.7 %`, `CSR <= COO`; `printed` keeps every digit."""
    if value is None:
        return ""
    number = number_of(value)
    if number is not None:
        text = f"{value:g}" if printed and abs(number) < 1e5 else digits(number)
        head = (unit or "").split(" ")[0]
        if head == "x" or "speedup" in (unit or "").lower():
            return f"{text}x"
        return f"{text} %" if head == "%" else text
    if isinstance(value, dict) and "as_printed" in value:
        return show(value["as_printed"], unit, printed=printed)
    if isinstance(value, dict):
        low, high = number_of(value.get("low")), number_of(value.get("high"))
        if set(value) == {"low", "high"} and low is not None and high is not None:
            first = show(low, unit, printed=printed).removesuffix(" %").removesuffix("x")
            return f"{first} to {show(high, unit, printed=printed)}"
        if set(value) == {"high"} and high is not None:
            return f"up to {show(high, unit, printed=printed)}"
        words = ((str(k).replace("_", " "), v) for k, v in value.items())
        return ", ".join(f"{k}: {show(v, unit, printed=printed)}" for k, v in words)
    if isinstance(value, list | tuple):
        return ", ".join(show(v, unit, printed=printed) for v in value)
    return str(value)


def unit_rest(unit: str | None) -> str:
    """Rest of a unit beyond the `x` or `%` that `show` writes, without enclosing brackets."""
    text = (unit or "").strip()
    for head in ("x", "%"):
        if text == head:
            return ""
        if text.startswith(f"{head} "):
            text = text[len(head) + 1 :]
            break
    if text.startswith("(") and text.endswith(")"):
        text = text[1:-1]
    return text


def digits(number: float) -> str:
    """Two significant digits below 10, three above, whole numbers in full."""
    magnitude = abs(number)
    if magnitude >= 1e15 or not math.isfinite(number):
        return f"{number:.3g}"
    if number == int(number) or magnitude >= 100:
        text = f"{round(number):,}" if magnitude >= 1e4 else str(round(number))
        return text.replace(",", " ")
    if magnitude >= 10:
        return f"{number:.1f}"
    return f"{number:.1f}" if magnitude >= 0.995 else f"{number:.2g}"
