"""Functions that a cell's system and its reference share, and those that the cell replaced.

A result is compared inside the process that made it. Where a plugin wraps an operator of torch, or
a function of dgbench that compares, the reference is wrong in the same way and the check passes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from functools import cache
from inspect import unwrap
from typing import Any, Final

import torch

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


@cache
def shared_functions() -> dict[tuple[str, str], Any]:
    """Functions, classes and methods of torch and dgbench by owner and name, as they are when this
    is first called: in the fork server, before any plugin of a third party is loaded."""
    return {
        (owner, name): value
        for owner, namespace, _ in _namespaces()
        for name, value in namespace.items()
        if callable(value) or isinstance(value, (staticmethod, classmethod, property))
    }


def replaced_functions() -> list[str]:
    """Reasons to doubt this process if some of `shared_functions` are not what they were."""
    now = {owner: (namespace, own) for owner, namespace, own in _namespaces()}
    names = []
    for (owner, name), value in shared_functions().items():
        namespace, own = now.get(owner, ({}, {}))
        there = namespace.get(name)
        if there is value or (name in namespace and name not in own):
            continue
        # The first optimiser of a class lets torch wrap its `step` for the profiler.
        hooked = callable(there) and getattr(there, "hooked", False)
        if not (hooked and unwrap(there) is unwrap(value)):  # type: ignore[arg-type]
            names.append(f"{owner}.{name}")
    if not names:
        return []
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return [f"it replaced {', '.join(names[:MAX_NAMED])}{more}, which its reference uses, too"]


def too_many_threads(allowed: int) -> list[str]:
    """Reasons to doubt this process if it gave torch more threads than its rivals have."""
    count = torch.get_num_threads()
    return [f"it set torch to {count} threads, {allowed} are allowed"] if count > allowed else []


def _namespaces() -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    """Name of each module and class whose functions are kept, what it has, and what is its own."""
    ours = [
        module for name, module in list(sys.modules.items())
        if name.startswith(OURS) and module is not None
    ]  # fmt: skip
    for module in (*TORCH, *ours):
        yield module.__name__, vars(module), vars(module)
    classes: dict[type, None] = {torch.Tensor: None}
    for module in (torch.nn, torch.optim, *ours):
        classes.update(
            (value, None)
            for value in vars(module).values()
            if isinstance(value, type) and value.__module__.startswith((module.__name__, "torch."))
        )
    for owner in classes:
        found: dict[str, Any] = {}
        for base in reversed(owner.__mro__[:-1]):  # a method may also be put before that of a base
            found.update(vars(base))
        yield f"{owner.__module__}.{owner.__qualname__}", found, vars(owner)
