"""Every call of the compiled extension, seen from outside: who is called, with what.

Nothing of the extension is listed by hand: functions and classes are found in the module, the names
of their arguments and the kinds of array they take in the signatures that nanobind writes.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch.utils.dlpack import from_dlpack

from dgbench.kernels_cuda import _cpu

ARRAY: Final = re.compile(r"ndarray\[(.*?)\](?=[\],) |]|$)")


@dataclass(frozen=True)
class Argument:
    """Requirements of a signature on one argument.

    Attributes:
        kind: `array`, `arrays` (a sequence of them), or `other`.
        dtypes: of all overloads; empty where the array may be of any and the function decides.
        dims: number of dimensions, None where any will do.
        dense: it must be contiguous. writable: it is an output.
        optional: None will do.
    """

    name: str
    kind: str
    dtypes: frozenset[str] = frozenset()
    dims: int | None = None
    dense: bool = True
    writable: bool = False
    optional: bool = False


def classes() -> dict[str, type]:
    """The classes of the extension by name."""
    return {name: value for name, value in vars(_cpu).items() if isinstance(value, type)}


def entry_points() -> dict[str, Any]:
    """Every function, constructor, method and property; `Class.name` for those of a class.

    Without `_commit_fault`, which checked builds have to commit a fault on purpose.
    """
    found: dict[str, Any] = {}
    for name, value in vars(_cpu).items():
        if isinstance(value, type):
            for inner, method in vars(value).items():
                made_here = hasattr(method, "__nb_signature__")
                if isinstance(method, property) or (
                    made_here and (not inner.startswith("__") or inner == "__init__")
                ):
                    found[f"{name}.{inner}"] = method
        elif hasattr(value, "__nb_signature__") and not name.startswith("_"):
            found[name] = value
    return found


def arguments(entry: Any) -> list[Argument]:
    """The arguments of a function or method, those of its overloads joined; without `self`."""
    texts = [text for text, *_ in getattr(entry, "__nb_signature__", ())]
    each = [_split(text[text.index("(") + 1 : text.rindex(") ->")]) for text in texts]
    return [_join([one[i] for one in each]) for i in range(len(each[0]) if each else 0)]


def _split(text: str) -> list[str]:
    parts, depth, begin = [], 0, 0
    for at, letter in enumerate(text + ","):
        depth += (letter in "[(") - (letter in "])")
        if letter == "," and depth == 0:
            parts.append(text[begin:at].strip())
            begin = at + 1
    return [part for part in parts if part not in ("self", "/", "*", "")]


def _join(texts: list[str]) -> Argument:
    name = texts[0].split(":")[0]
    inside = [found.group(1) for text in texts if (found := ARRAY.search(text))]
    if not inside:
        return Argument(name, "other")
    shape = re.search(r"shape=\(([^)]*)\)", inside[0])
    return Argument(
        name,
        "arrays" if "Sequence[" in texts[0] else "array",
        frozenset(d for one in inside for d in re.findall(r"dtype=(\w+)", one)),
        shape.group(1).count("*") if shape else None,
        "order='C'" in inside[0],
        "writable=False" not in inside[0],
        "| None" in texts[0],
    )


@dataclass
class Call:
    """One call of an entry point.

    Attributes:
        function: what to call, bound to its object where it is a method.
        owner: that object, or None.
        names: of all arguments. given: their values, NumPy arrays for tensors.
        positional: how many were given without their name.
    """

    entry: str
    function: Callable[..., Any]
    owner: Any
    names: list[str]
    given: list[Any]
    positional: int

    def run(self, given: list[Any] | None = None) -> Any:
        """Call it, with other values if they are given."""
        given = self.given if given is None else given
        first = self.positional
        rest = zip(self.names[first:], given[first:], strict=True)
        return self.function(*given[:first], **{n: v for n, v in rest if v is not LEFT_OUT})


LEFT_OUT: Final = object()
"""Stands for an argument that a caller did not give: None is not the default everywhere."""


def as_numpy(value: Any) -> Any:
    """Tensors, alone, in capsules and in sequences, as the arrays that they are."""
    if type(value).__name__ == "PyCapsule":
        value = from_dlpack(value)
    if isinstance(value, torch.Tensor):
        return value.detach().numpy()
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], torch.Tensor):
        return [one.detach().numpy() for one in value]
    return value


def arrays_of(given: list[Any]) -> list[np.ndarray]:
    """The arrays among the values of a call, those in sequences too."""
    flat = [x for value in given for x in (value if isinstance(value, list) else [value])]
    return [x for x in flat if isinstance(x, np.ndarray)]


@contextmanager
def seen(watch: Callable[[Call], Any]) -> Iterator[None]:
    """Within it, `watch(call)` makes every call of the extension: what it returns is the answer."""

    def wrapped(entry: str, function: Any, listed: Any, method: bool) -> Callable[..., Any]:
        known = [one.name for one in arguments(listed)]

        def call(*given: Any, **named: Any) -> Any:
            owner, *values = given if method else (None, *given)
            bound = functools.partial(function, owner) if method else function
            first = len(values)
            values += [named.get(name, LEFT_OUT) for name in known[first:]]
            return watch(Call(entry, bound, owner, known, [as_numpy(v) for v in values], first))

        return call

    entries, types, undo = entry_points(), classes(), []
    for name, listed in entries.items():
        owner, _, inner = name.partition(".")
        if isinstance(listed, property):
            continue
        if inner == "__init__":
            holder, key, function = _cpu, owner, getattr(_cpu, owner)
        elif inner:
            holder, key, function = types[owner], inner, listed
        else:
            holder, key, function = _cpu, owner, listed
        undo.append((holder, key, vars(holder)[key]))
        setattr(holder, key, wrapped(name, function, listed, bool(inner) and inner != "__init__"))
    try:
        yield
    finally:
        for holder, key, value in reversed(undo):
            setattr(holder, key, value)
