"""Functions that the ranks of the tests run. Imported by their processes, so it imports little."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dgbench.runtime.collectives import Communicator, GroupCommunicator, LinkEmulation
from dgbench.runtime.collectives.communicator import CommunicationError
from dgbench.runtime.collectives.shared import Mailbox
from dgbench.runtime.collectives.wire import ProcessorClock
from dgbench.runtime.errors import CheckFailed, UnsupportedError

Plan = tuple[list[list[int]], tuple[int, ...], int]
"""Rows from each rank to each, trailing shape, seed."""


def rows_of(plan: Plan, rank: int) -> Tensor:
    """Rows that `rank` sends, float32[sum of its row, ...]."""
    sizes, shape, seed = plan
    random = np.random.default_rng([seed, rank])
    return torch.from_numpy(random.standard_normal((sum(sizes[rank]), *shape), dtype=np.float32))


def weights_of(plan: Plan, rank: int) -> Tensor:
    """Factors of the received rows in the loss of `rank`."""
    sizes, shape, seed = plan
    received = sum(row[rank] for row in sizes)
    random = np.random.default_rng([seed, rank, 1])
    return torch.from_numpy(random.standard_normal((received, *shape), dtype=np.float32))


def exchange_plans(comm: Communicator, plans: list[Plan], method: str) -> list[Any]:
    """Per plan: received rows, gradient of the sent ones, and the traffic of both passes."""
    if isinstance(comm, GroupCommunicator):
        comm.method = method
    found = []
    for plan in plans:
        comm.traffic.clear()
        send = plan[0][comm.rank]
        receive = [row[comm.rank] for row in plan[0]]
        x = rows_of(plan, comm.rank).requires_grad_()
        with comm.phase("rerun"):
            out = comm.all_to_all(x, send, receive)
        (out * weights_of(plan, comm.rank)).sum().backward()
        counts = {
            (unit, phase): comm.traffic.row(unit, operation="all_to_all", phase=phase).tolist()
            for unit in ("floats", "bytes", "messages")
            for phase in ("forward", "rerun", "backward")
        }
        found.append((out.detach(), x.grad, counts, comm.all_traffic().matrix("floats").tolist()))
    return found


def two_at_once(comm: Communicator) -> list[Tensor]:
    """Two exchanges under way with work between; gradients of both inputs."""
    n = comm.size
    a = torch.arange(2.0 * n).reshape(n, 2).add(10 * comm.rank).requires_grad_()
    b = (a.detach() + 0.5).requires_grad_()
    first = comm.start_all_to_all(a * 2, [1] * n, [1] * n)
    second = comm.start_all_to_all(b * 3, [1] * n, [1] * n)
    between = (a * a).sum()
    x, y = second.wait(), first.wait()
    ((x * x).sum() + (y * y * y).sum() + between).backward()
    return [x.detach(), y.detach(), a.grad, b.grad]


def every_dtype(comm: GroupCommunicator, method: str) -> dict[str, tuple[Tensor, Tensor, Tensor]]:
    """all_to_all, all_gather and broadcast of many dtypes."""
    comm.method = method
    found = {}
    for dtype in (torch.bool, torch.int8, torch.int64, torch.bfloat16, torch.float64):
        x = (torch.arange(comm.size) + 10 * comm.rank).remainder(7).to(dtype)
        ones = [1] * comm.size
        found[str(dtype)] = (
            comm.all_to_all(x, ones, ones),
            comm.all_gather(x[: comm.rank], list(range(comm.size))),
            comm.broadcast(x, comm.size - 1),
        )
    return found


def others(comm: GroupCommunicator, method: str) -> dict[str, Any]:
    """Reductions, sizes, counters."""
    comm.method = method
    x = torch.arange(5, dtype=torch.float64) + comm.rank
    found: dict[str, Any] = {op: comm.all_reduce(x, op) for op in ("sum", "max", "min", "mean")}
    found["untouched"] = x
    found["reduced"] = comm.all_traffic().matrix("floats", operation="all_reduce").tolist()
    send = [comm.rank * 10 + q for q in range(comm.size)]
    found["sizes"] = comm.exchange_sizes(send)
    comm.broadcast(torch.zeros(3), 0)
    comm.all_gather(torch.zeros(0, 2))
    found["counters"] = dict(comm.meter.counters)
    found["links"] = comm.traffic.counters()
    comm.barrier()
    large = torch.ones(2**18, dtype=torch.float64) * 2**comm.rank
    found["large"] = comm.all_reduce(large)
    found["any"] = comm.all_reduce(torch.tensor([comm.rank == 1, False]), "max")
    found["whole"] = comm.all_reduce(torch.tensor([3 + comm.rank], dtype=torch.int8), "sum")
    return found


def about(comm: Communicator, tag: str) -> dict[str, Any]:
    """Properties of a rank's process."""
    return {
        "tag": tag,
        "rank": comm.rank,
        "size": comm.size,
        "pid": os.getpid(),
        "threads": torch.get_num_threads(),
        "shared": torch.rand(1).item(),
        "own": torch.rand(1, generator=comm.generator).item(),
    }


class FakeClock:
    """Time that passes when it is told to; each rank has its own."""

    def __init__(self) -> None:
        self.moment = 1.0

    def now(self) -> float:
        return self.moment

    def sleep_until(self, moment: float, now: float) -> float:
        assert now == self.moment
        self.moment = max(self.moment, moment)
        return self.moment


WireStep = tuple[str, Any]


def on_wire(
    comm: GroupCommunicator, wires: list[LinkEmulation], steps: list[WireStep], method: str = "auto"
) -> Any:
    """The rank's own moment after every step, on each wire; what was received, waited and sent.

    Steps: ("compute", seconds by rank), ("start", rows from each rank to each), ("wait", number of
    the start), ("reduce", floats), ("gather", rows by rank), ("broadcast", (root, floats)).
    """
    found = []
    comm.method = method
    for wire in wires:
        clock, under_way, moments, sums = FakeClock(), [], [], []
        comm.use_wire(wire, clock=clock)
        comm.meter.reset()
        for name, what in steps:
            if name == "compute":
                clock.moment += what[comm.rank]
            elif name == "start":
                receive = [row[comm.rank] for row in what]
                x = torch.full((sum(what[comm.rank]), 3), float(comm.rank + 1))
                under_way.append(comm.start_all_to_all(x, what[comm.rank], receive))
            elif name == "wait":
                sums.append(under_way[what].wait().sum().item())
            elif name == "reduce":
                comm.all_reduce(torch.ones(what))
            elif name == "gather":
                comm.all_gather(torch.ones(what[comm.rank], 2), what)
            elif name == "broadcast":
                comm.broadcast(torch.ones(what[1]), what[0])
            elif name == "barrier":
                comm.barrier()
            moments.append(clock.moment)
        comm.barrier()
        found.append((moments, sums, comm.meter.spent["wire_busy"]))
    comm.use_wire(None)
    before = clock.moment
    comm.all_reduce(torch.ones(2**10))
    return found, clock.moment == before


def on_processor_clocks(comm: GroupCommunicator) -> list[float]:
    """Moments after an exchange that rank 1 is late for by an hour, and after a barrier."""
    found = []
    for last in ("exchange", "barrier"):
        clock = ProcessorClock()
        comm.use_wire(LinkEmulation(0.0, float("inf")), clock=clock)
        begin = clock.now()
        if comm.rank == 1:
            clock.sleep_until(begin + 3600.0, begin)
        if last == "exchange":
            ones = [1] * comm.size
            comm.all_to_all(torch.ones(comm.size), ones, ones)
        else:
            comm.barrier()
        found.append(clock.now() - begin)
    return found


def large(comm: Communicator) -> Tensor:
    """A result larger than any pipe buffers."""
    return torch.full((2**20,), float(comm.rank))


def local_result(comm: Communicator) -> Any:
    """A result that cannot be pickled."""
    return lambda: comm.rank


def fault(comm: Communicator, how: str, at: int) -> int:
    """Rank `at` fails in some way while the others wait for it in an all-reduce."""
    if comm.rank == at:
        break_down(comm, how)
    comm.all_reduce(torch.ones(3))
    return comm.rank


def break_down(comm: Communicator, how: str) -> None:
    """Fail."""
    if how == "raises":
        raise ValueError("seven is not even")
    if how == "check":
        raise CheckFailed("loss is off", hint="look", deviation={"loss": 0.5})
    if how == "unsupported":
        raise UnsupportedError("not on this machine")
    if how == "exits":
        sys.exit(3)
    if how == "vanishes":
        os._exit(0)
    if how == "killed":
        os.kill(os.getpid(), 9)
    if how == "spins":
        while True:
            pass
    if how == "other":
        comm.barrier()
    if how == "allocates":
        kept = []
        while True:
            kept.append(torch.ones(2**20))  # 4 MiB
            time.sleep(0.002)
    if how == "too-much":
        torch.empty(2**52)


def leave_child(comm: Communicator, folder: str) -> int:
    """Start a process and forget it."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    with open(f"{folder}/{comm.rank}", "w") as file:
        file.write(str(child.pid))
    return child.pid


def wait_forever(comm: Communicator, folder: str) -> None:
    """Say who is there and wait."""
    with open(f"{folder}/{comm.rank}.part", "w") as file:
        file.write(str(os.getpid()))
    os.replace(f"{folder}/{comm.rank}.part", f"{folder}/{comm.rank}")
    if comm.rank:
        comm.barrier()
    time.sleep(60)


def add_up(comm: Communicator, number: int) -> dict[str, float]:
    """For torchrun."""
    return {"sum": comm.all_reduce(torch.tensor([float(number + comm.rank)])).item()}


def compute(comm: Communicator) -> Tensor:
    """Products and a backward pass that would use a pool of threads if there were one."""
    x = torch.arange(300.0 * 300).reshape(300, 300).div(9e4).requires_grad_()
    torch.softmax(x @ x, 1).square().sum().backward()
    return comm.all_reduce(x.grad)


def refused_exchange(comm: GroupCommunicator, text: str) -> tuple[str, str]:
    """Name of the error of an exchange that the backend refuses with a text, and the method."""

    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError(text)

    Mailbox.open = lambda *_: None  # as between machines
    torch.distributed.all_to_all_single = refuse
    try:
        comm.all_to_all(torch.ones(comm.size), [1] * comm.size, [1] * comm.size)
    except CommunicationError as error:
        return type(error).__name__, comm.method
    return "", comm.method
