"""Functions that a cell's system and its reference share, and those that the cell replaced.

A result is compared inside the process that made it. Where a plugin wraps an operator of torch, or
a function of dgbench that compares, the reference is wrong in the same way and the check passes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from inspect import unwrap
from operator import is_
from types import ModuleType
from typing import Any, Final

import torch

from dgbench.runtime.steady import Loop

OURS: Final = (
    "dgbench.kernels_cuda.",
    "dgbench.lab.",
    "dgbench.models.",
    "dgbench.runtime.",
    "dgbench.systems.base.",
    "dgbench.systems.reference.",
)
"""Prefixes of dgbench's modules whose functions are kept."""

TORCH: Final = (
    torch, torch.autograd, torch.linalg, torch.nn.functional, torch.nn.init, torch.optim,
)  # fmt: skip
"""Modules of torch whose functions are kept, beside the classes of `torch.nn` and `torch.optim`."""

MAX_NAMED: Final = 4
"""Replaced functions that a reason names."""


Owner = ModuleType | type


@cache
def shared_functions() -> dict[str, dict[str, Any]]:
    """Functions, classes and methods of torch and dgbench by owner and name, as they are when this
    is first called: in the fork server, before any plugin of a third party is loaded."""
    _kept_values.cache_clear()
    _kept_values()
    return {
        name: {
            key: value
            for key, value in _inherited(owner).items()
            if callable(value) or isinstance(value, (staticmethod, classmethod, property))
        }
        for name, owner in _owners()
    }


@cache
def _kept_values() -> dict[Owner, tuple[Any, ...]]:
    """Values of each owner and of all classes that owners inherit from, in their order.

    Where they are the same objects, nobody looks at names and at what is inherited. A process
    shares its memory with the fork server until it touches it, and to touch all of that cost each
    of a run's hundreds of processes some 20 ms.
    """
    return {one: tuple(vars(one).values()) for _, owner in _owners() for one in _line(owner)}


def replaced_functions() -> list[str]:
    """Reasons to doubt this process if some of `shared_functions` are not what they were."""
    shared, now = shared_functions(), dict(_owners())
    as_before = {one: _same(one, values) for one, values in _kept_values().items()}
    names = []
    for place, functions in shared.items():
        owner = now.get(place)
        if owner is not None and all(as_before.get(one, False) for one in _line(owner)):
            continue
        namespace, own = ({}, {}) if owner is None else (_inherited(owner), vars(owner))
        for name, value in functions.items():
            there = namespace.get(name)
            if there is value or (name in namespace and name not in own):
                continue
            # The first optimiser of a class lets torch wrap its `step` for the profiler.
            hooked = callable(there) and getattr(there, "hooked", False)
            if not (hooked and unwrap(there) is unwrap(value)):  # type: ignore[arg-type]
                names.append(f"{place}.{name}")
    if not names:
        return []
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return [f"it replaced {', '.join(names[:MAX_NAMED])}{more}, which its reference uses, too"]


def too_many_threads(allowed: int, loops: Sequence[Loop] = ()) -> list[str]:
    """Reasons to doubt this process if it gave torch more threads than its rivals have, now or in
    a loop that was timed."""
    count = max([torch.get_num_threads(), *(loop.threads for loop in loops)])
    return [f"it set torch to {count} threads, {allowed} are allowed"] if count > allowed else []


def _owners() -> Iterator[tuple[str, Owner]]:
    """Modules and classes whose functions are kept, by name."""
    ours = [
        module for name, module in list(sys.modules.items())
        if name.startswith(OURS) and module is not None
    ]  # fmt: skip
    for module in (*TORCH, *ours):
        yield module.__name__, module
    classes: dict[type, None] = {torch.Tensor: None}
    for module in (torch.nn, torch.optim, *ours):
        classes.update(
            (value, None)
            for value in vars(module).values()
            if isinstance(value, type) and value.__module__.startswith((module.__name__, "torch."))
        )
    for owner in classes:
        yield f"{owner.__module__}.{owner.__qualname__}", owner


def _line(owner: Owner) -> tuple[Owner, ...]:
    """A module, or a class and those that it inherits from but `object`."""
    return owner.__mro__[:-1] if isinstance(owner, type) else (owner,)


def _inherited(owner: Owner) -> Mapping[str, Any]:
    """Members of an owner by name; a method may also be put before that of a base."""
    found: dict[str, Any] = {}
    for one in reversed(_line(owner)):
        found.update(vars(one))
    return found


def _same(owner: Owner, values: tuple[Any, ...]) -> bool:
    """True if an owner has the same values in the same order as it had."""
    now = vars(owner).values()
    return len(now) == len(values) and all(map(is_, now, values))
