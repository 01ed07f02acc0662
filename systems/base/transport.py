"""Transport of rows between ranks: shared memory, Gloo's sockets, or NCCL."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, Literal

from dgbench.runtime.collectives import Communicator
from dgbench.runtime.collectives.group import GroupCommunicator
from dgbench.runtime.errors import UnsupportedError, unknown_key

Transport = Literal["auto", "gloo", "backend"]
TRANSPORTS: Final[tuple[Transport, ...]] = ("auto", "gloo", "backend")
TITLES: Final = {"auto": "shared memory", "gloo": "Gloo", "nccl": "NCCL", "backend": "NCCL"}


def check_transport(transport: str) -> None:
    """Raise UnknownKeyError unless it is one of `TRANSPORTS`."""
    if transport not in TRANSPORTS:
        raise unknown_key("transport", transport, TRANSPORTS)


def use_transport(comm: Communicator, transport: Transport) -> None:
    """Let a group carry rows so from here on; all ranks call it, with nothing under way.

    Args:
        comm: of any kind; one rank alone carries nothing.
        transport: `auto` is shared memory between ranks of one machine that have no GPUs of their
            own, else the backend; `gloo` is Gloo's sockets, as between the machines of a cluster;
            `backend` is what connects the ranks: these sockets, or NCCL between GPUs of their own.

    Raises:
        UnknownKeyError: another transport.
        UnsupportedError: `gloo` for ranks that NCCL connects.
    """
    check_transport(transport)
    if not isinstance(comm, GroupCommunicator) or comm.size == 1:
        return
    if transport == "gloo" and comm.backend != "gloo":
        raise UnsupportedError(
            f"'transport' is 'gloo', and '{comm.backend}' connects these ranks",
            hint="transport='backend', or device='cpu'",
        )
    comm.method = "auto" if transport == "auto" else "collective"


def carrier(comm: Communicator) -> str:
    """Transport that has carried rows so far, in words."""
    found = comm.carrier if isinstance(comm, GroupCommunicator) else "nothing"
    return TITLES.get(found, found)


def bind(rank: int, size: int) -> bool:
    """Keep this process and its threads on one core, shared by as few ranks as can be.

    A kernel that wakes a process by a pipe likes to place it beside the one that wrote to it, so
    that ranks crowd on one core while others idle, for seconds; launchers of clusters bind ranks,
    too. Nothing is done where some core would have more ranks than others, or on systems that
    know no binding.

    Returns:
        Whether it was done.
    """
    if not hasattr(os, "sched_setaffinity"):
        return False
    cores = sorted(os.sched_getaffinity(0))
    if size > len(cores) and size % len(cores):
        return False
    for thread in Path("/proc/self/task").iterdir():
        try:
            os.sched_setaffinity(int(thread.name), {cores[rank % len(cores)]})
        except OSError:
            return False
    return True
