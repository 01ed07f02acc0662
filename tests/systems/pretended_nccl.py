"""Ranks that NCCL would connect, where there is no device.

Each rank has a device of `pretended_cuda` and a process group that refuses what NCCL refuses: a
tensor of the host, or of another device. What carries the bytes is Gloo. Beside it stands the group
of hosts, which refuses tensors of a device.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.distributed as dist
from pretended_cuda import DEVICE, Pretended, pretended_cuda
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map

from dgbench.runtime.collectives import Communicator
from dgbench.runtime.ranks import launch

CALLS = ("all_to_all_single", "all_gather", "all_reduce", "broadcast")
_REAL = {name: getattr(dist, name) for name in CALLS}


CALLED: Counter[str] = Counter()
"""Calls of this rank over the two groups by name, `host` ones as `host <name>`."""


def _inner(x: Any) -> Any:
    return x.inner if isinstance(x, Pretended) else x


@contextmanager
def nccl(patch: Any, comm: Communicator) -> Iterator[None]:
    """Let a rank of a Gloo group have a device and a group like NCCL's."""
    CALLED.clear()
    hosts = dist.new_group(backend="gloo")

    def guarded(name: str) -> Callable[..., Any]:
        real = getattr(dist, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            parts, _ = tree_flatten((args, kwargs))
            tensors = [x for x in parts if isinstance(x, Tensor)]
            at_host = any(x is hosts for x in parts)
            CALLED[f"host {name}" if at_host else name] += 1
            for x in tensors:
                if isinstance(x, Pretended) == at_host:
                    where = "hosts" if at_host else "devices"
                    raise RuntimeError(f"{name} among {where} was given a tensor of '{x.device}'")
            return real(*tree_map(_inner, args), **tree_map(_inner, kwargs))

        return call

    for name in CALLS:
        patch.setattr(dist, name, guarded(name))
    objects = dist.all_gather_object

    def tell(found: list[Any], what: Any, group: Any = None) -> None:
        if group is not hosts:
            raise RuntimeError("objects of a host were given to a group of devices")
        # What it calls is not to be guarded: it is Gloo's own.
        with pytest.MonkeyPatch.context() as inside:
            inside.setattr(dist.distributed_c10d, "all_gather", _REAL["all_gather"])
            objects(found, what, group)

    patch.setattr(dist, "all_gather_object", tell)
    comm.backend, comm.device, comm._host_group = "nccl", DEVICE, hosts  # type: ignore[attr-defined]
    yield


def launch_on_nccl(
    function: Callable[..., Any],
    ranks: int,
    args: Sequence[Any] = (),
    *,
    device: str = "cpu",
    **how: Any,
) -> Any:
    """`launch` as it is where each rank has a device of its own."""
    assert torch.device(device).type == "cuda", f"ranks were launched on '{device}'"
    return launch(_be_rank, ranks, (function, tuple(args)), **how)


def _be_rank(comm: Communicator, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    with pytest.MonkeyPatch.context() as patch, pretended_cuda(patch), nccl(patch, comm):
        return function(comm, *args)
