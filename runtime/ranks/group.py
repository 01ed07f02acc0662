"""Joining a process group, as a rank that was launched here or by torchrun."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist

from dgbench.runtime.collectives import (
    Communicator,
    GroupCommunicator,
    LocalCommunicator,
    RankProgress,
)
from dgbench.runtime.errors import InvalidInputError, UnsupportedError, unknown_key
from dgbench.runtime.meter import Meter

BACKENDS: Final = ("auto", "gloo", "nccl")


def choose_backend(backend: str, device: str, ranks: int) -> str:
    """`gloo` or `nccl` for `ranks` ranks of this machine.

    `auto` is NCCL where every rank has a GPU of its own, else Gloo: NCCL refuses two ranks on
    one device, Gloo goes through the host's memory.

    Raises:
        UnknownKeyError: another backend.
        UnsupportedError: this torch or this machine does not have it.
    """
    if backend not in BACKENDS:
        raise unknown_key("backend", backend, BACKENDS)
    if not dist.is_available():
        raise UnsupportedError(
            "this torch was built without torch.distributed", hint="install an official wheel"
        )
    cuda = torch.device(device).type == "cuda"
    devices = torch.cuda.device_count() if cuda or backend == "nccl" else 0
    if cuda and not devices:
        raise UnsupportedError("no CUDA device for ranks on 'cuda'", hint="device='cpu'")
    if backend == "auto":
        backend = "nccl" if cuda and devices >= ranks and dist.is_nccl_available() else "gloo"
    if backend == "nccl":
        if not cuda:
            raise UnsupportedError(
                f"the backend 'nccl' moves CUDA tensors and the device is '{device}'",
                hint="device='cuda', or backend='gloo'",
            )
        if not dist.is_nccl_available():
            raise UnsupportedError("this torch has no NCCL", hint="backend='gloo'")
        if devices < ranks:
            raise UnsupportedError(
                f"NCCL needs a GPU for each of {ranks} ranks, this machine has {devices}",
                hint="fewer ranks, or backend='gloo', which lets ranks share a GPU",
            )
    elif not dist.is_gloo_available():
        raise UnsupportedError("this torch has no Gloo", hint="install an official wheel")
    return backend


def own_device(device: str, local_rank: int) -> torch.device:
    """The device of a rank: `cuda` is dealt out by its number on this machine."""
    found = torch.device(device)
    if found.type != "cuda" or found.index is not None:
        return found
    return torch.device("cuda", local_rank % torch.cuda.device_count())


def enter_group(
    *,
    rank: int,
    size: int,
    backend: str,
    device: torch.device,
    timeout_s: float,
    store: Any = None,
    meter: Meter | None = None,
    seed: int = 1,
    progress: RankProgress | None = None,
) -> Communicator:
    """Initialise the default process group and open its communicator.

    Args:
        store: where the ranks find each other; None: the address in the environment (`env://`).
    """
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if size == 1 and store is not None:
        return LocalCommunicator(device=device, meter=meter, seed=seed)
    where: dict[str, Any] = {"init_method": "env://"} if store is None else {"store": store}
    dist.init_process_group(
        backend, rank=rank, world_size=size, timeout=timedelta(seconds=timeout_s), **where
    )
    host_group = None
    if backend == "nccl" and dist.is_gloo_available():
        host_group = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout_s))
    return GroupCommunicator(
        device=device,
        meter=meter,
        seed=seed,
        progress=progress,
        timeout_s=timeout_s,
        host_group=host_group,
    )


@contextmanager
def join(
    *,
    timeout_s: float,
    backend: str = "auto",
    device: str = "cpu",
    seed: int = 1,
    meter: Meter | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Iterator[Communicator]:
    """Join the group that torchrun has started this process for, on one machine or several.

    `torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint host:29500 ...`
    sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT; it also restarts or ends the
    group when a rank fails. An operation that waits longer than `timeout_s` fails.

    Raises:
        UnsupportedError: the process was not started by torchrun, or there is no such backend.
        InvalidInputError: numbers in the environment that cannot be.
    """
    missing = [
        k for k in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if not environment.get(k)
    ]
    if missing:
        raise UnsupportedError(
            f"{', '.join(missing)} not set: this process was not started by torchrun",
            hint="torchrun --nproc-per-node 4 -m dgbench.runtime.ranks module:function",
        )
    rank, size = _number(environment, "RANK"), _number(environment, "WORLD_SIZE")
    local = _number(environment, "LOCAL_RANK", rank)
    here = _number(environment, "LOCAL_WORLD_SIZE", size)
    if not 0 <= rank < size:
        raise InvalidInputError(f"RANK is {rank} and WORLD_SIZE {size}; needed: 0 <= RANK < SIZE")
    torch.manual_seed(seed)
    comm = enter_group(
        rank=rank,
        size=size,
        backend=choose_backend(backend, device, here),
        device=own_device(device, local),
        timeout_s=timeout_s,
        meter=meter,
        seed=seed,
    )
    try:
        yield comm
    finally:
        dist.destroy_process_group()


def _number(environment: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = environment.get(name, "" if default is None else str(default))
    try:
        return int(text)
    except ValueError:
        raise InvalidInputError(f"{name} is {text!r}, expected an integer") from None
