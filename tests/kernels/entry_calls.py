"""Calls of the compiled extension, seen from outside: the function and its arguments.

Functions, classes and the names of arguments are read from the module and from the signatures that
nanobind writes, so that an operator that joins is seen without being listed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch.utils.dlpack import from_dlpack

from dgbench.kernels_cuda import _cpu

LEFT_OUT: Final = object()
"""Stands for an argument that a caller did not give: None is not the default everywhere."""


@dataclass(frozen=True)
class Argument:
    """An argument of a signature: `dense` arrays are contiguous, `writable` ones are outputs."""

    name: str
    dense: bool
    writable: bool
    optional: bool


def entry_points() -> dict[str, Any]:
    """Every function, constructor, method and property; `Class.name` for those of a class.

    Without `_commit_fault`, which checked builds have to commit a fault on purpose.
    """
    entries: dict[str, Any] = {}
    for name, value in vars(_cpu).items():
        if isinstance(value, type):
            for inner, method in vars(value).items():
                made_here = hasattr(method, "__nb_signature__")
                if isinstance(method, property) or (
                    made_here and (not inner.startswith("__") or inner == "__init__")
                ):
                    entries[f"{name}.{inner}"] = method
        elif hasattr(value, "__nb_signature__") and not name.startswith("_"):
            entries[name] = value
    return entries


def arguments(entry: Any) -> list[Argument]:
    """The arguments of a function or method, as its first overload has them; without `self`."""
    overloads = [text for text, *_ in getattr(entry, "__nb_signature__", ())]
    first = overloads[0] if overloads else "() ->"
    return [
        Argument(
            text.split(":")[0],
            "order='C'" in text,
            "ndarray[" in text and "writable=False" not in text,
            "| None" in text,
        )
        for text in _split(first[first.index("(") + 1 : first.rindex(") ->")])
    ]


def _split(text: str) -> list[str]:
    """The parts of a list of parameters between commas outside of brackets."""
    parts, depth, begin = [], 0, 0
    for at, letter in enumerate(text + ","):
        depth += (letter in "[(") - (letter in "])")
        if letter == "," and depth == 0:
            parts.append(text[begin:at].strip())
            begin = at + 1
    return [part for part in parts if part not in ("self", "/", "*", "")]


@dataclass
class Call:
    """One call of an entry point.

    Attributes:
        function: bound to its object, `owner`, where it is a method.
        names: of all arguments. given: their values, NumPy arrays for tensors.
        positional: number of those given without a name.
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

    members, undo = dict(vars(_cpu)), []
    for name, listed in entry_points().items():
        owner, _, inner = name.partition(".")
        if isinstance(listed, property):
            continue
        if inner and inner != "__init__":
            holder, key, function = members[owner], inner, listed
        else:
            holder, key, function = _cpu, owner, members[owner]
        undo.append((holder, key, vars(holder)[key]))
        setattr(holder, key, wrapped(name, function, listed, bool(inner) and inner != "__init__"))
    try:
        yield
    finally:
        for holder, key, value in reversed(undo):
            setattr(holder, key, value)
