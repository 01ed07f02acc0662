"""One call for each ceiling of a device, what it moves or multiplies, and the value assumed of it.

What a call loaded or added up is compared with what it must be, so that no work was left out.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from dgbench.runtime.errors import UnsupportedError
from dgbench.systems.operators.ceilings.kernels import Bench

IN_FLIGHT, CHAINS, TILES, RING = 4, 16, 8, 1024
"""As in the source of the kernels."""
LINE = 128
"""Bytes between the entries of a chase: a line each."""
COMPARED = 8
"""Steps of a chase that are made on the host too."""


@dataclass(frozen=True)
class CeilingCall:
    """A call of a ceiling, ready to run.

    Attributes:
        run: one call. amount: bytes or operations of it, or steps that wait for each other.
        wrong: share of its results that are not what they must be.
        clocks: cycles of a step, where the kernel counts them.
    """

    run: Callable[[], object]
    amount: float
    wrong: Callable[[], float] = lambda: 0.0
    clocks: Callable[[], float] | None = None


@dataclass(frozen=True)
class Ceiling:
    """A limit of a device.

    Attributes:
        metric: of the rate (`bandwidth`, `product_rate`), "" where steps are timed.
        assumed: lowest and highest value for an H200, in units of a second or seconds a step;
            None where nothing was assumed.
        make: bench -> its call. needs: least compute capability.
    """

    metric: str
    assumed: tuple[float, float] | None
    make: Callable[[Bench], CeilingCall]
    needs: tuple[int, int] = (0, 0)

    def seconds(self, amount: float) -> tuple[float, float] | None:
        """Shortest and longest time of a call as it was assumed."""
        if self.assumed is None:
            return None
        low, high = self.assumed
        return (amount / high, amount / low) if self.metric else (low * amount, high * amount)


def c64(number: int) -> ctypes.c_uint64:
    return ctypes.c_uint64(number)


def share_unlike(found: Tensor, each: float) -> float:
    """Share of sums that are not `each`: of threads that did not do all of the work."""
    return float((found != each).double().mean())


def copy(bench: Bench) -> CeilingCall:
    """A copy inside the device, read and written."""
    source = bench.table(bench.size(1 << 30))
    target = torch.zeros_like(source)
    return CeilingCall(
        lambda: target.copy_(source), 2 * source.nbytes, lambda: share_unlike(target, 1.0)
    )


def read_again(bench: Bench, requests: int, *, on_host: bool = False) -> CeilingCall:
    """A buffer of 16 MB, read again and again; mapped memory may stay in the cache, too."""
    data = bench.table(bench.size(16e6, 64) // 16 * 16, on_host=on_host)
    count = bench.size(requests, IN_FLIGHT) // IN_FLIGHT * IN_FLIGHT
    sums = torch.zeros(bench.threads, device=bench.device)
    run = partial(
        bench.launch, "read_over_on", data, c64(data.nbytes // 16), bench.blocks, count, sums
    )
    return CeilingCall(
        run, bench.threads * count * 16, lambda: share_unlike(sums, 4.0 * count)
    )  # fmt: skip


def gather(
    bench: Bench, table_bytes: float, width: int, *, on_host: bool = False
) -> CeilingCall:  # fmt: skip
    """Random requests, all lanes of a row together."""
    table = bench.table(bench.size(table_bytes, width) // width * width, on_host=on_host)
    count = bench.size(64 if on_host else 1024, IN_FLIGHT) // IN_FLIGHT * IN_FLIGHT
    sums = torch.zeros(bench.threads, device=bench.device)

    def run() -> None:
        bench.seed += 1
        bench.launch("gather_on", table, c64(table.nbytes // width), width, bench.blocks, count,
                     ctypes.c_uint32(bench.seed * 2654435761 & 0xFFFFFFFF), sums)  # fmt: skip

    return CeilingCall(
        run, bench.threads * count * 16, lambda: share_unlike(sums, 4.0 * count)
    )  # fmt: skip


def reduce(bench: Bench, table_bytes: float, lanes: int) -> CeilingCall:
    """Payload that is added to random rows of four floats; lanes 0: as vectors."""
    table = bench.table(bench.size(table_bytes, 16) // 16 * 16, fill=0.0)
    count, calls = bench.size(256), 0
    payload = bench.threads * count * (16 if lanes == 0 else 4)

    def run() -> None:
        nonlocal calls
        calls += 1
        bench.launch("reduce_on", table, c64(table.nbytes // 16), lanes, bench.blocks, count,
                     ctypes.c_uint32(calls * 2654435761 & 0xFFFFFFFF))  # fmt: skip

    def wrong() -> float:
        wanted = calls * payload / 4
        return abs(table.sum(dtype=torch.float64).item() - wanted) / wanted

    return CeilingCall(run, payload, wrong)


def cycle(nodes: int, device: str, seed: int = 1) -> Tensor:
    """int32[nodes], the node after each in one random cycle through all of them."""
    draw = torch.Generator(device).manual_seed(seed)
    order = torch.randperm(nodes, device=device, generator=draw)
    following = torch.empty(nodes, dtype=torch.int32, device=device)
    following[order] = order.roll(-1).int()
    return following


def chase(bench: Bench, table_bytes: float, steps: int, *, on_host: bool = False) -> CeilingCall:
    """Loads of which each waits for the one before."""
    nodes = bench.size(table_bytes, 64 * LINE) // LINE
    table = bench.table(nodes * LINE, on_host=on_host, fill=0.0).view(torch.int32)
    following = cycle(nodes, bench.device)
    table.view(nodes, -1)[:, 0] = following.to(table.device)
    return _chase(bench, following, table, LINE // 4, bench.size(steps, 16))


def chase_shared(bench: Bench) -> CeilingCall:
    """Loads from shared memory, of which each waits for the one before."""
    following = cycle(RING, bench.device)
    return _chase(bench, following, following, 0, bench.size(65_536, 16))


def _chase(
    bench: Bench, following: Tensor, table: Tensor, stride: int, steps: int
) -> CeilingCall:  # fmt: skip
    state = torch.zeros(2, dtype=torch.int64, device=bench.device)

    def wrong() -> float:
        """Its first steps, against steps on the host."""
        at, own = 0, torch.zeros_like(state)
        bench.launch("chase_on", table, stride, COMPARED, own)
        for _ in range(COMPARED):
            at = int(following[at])
        return float(own[0].item() != at)

    return CeilingCall(
        lambda: bench.launch("chase_on", table, stride, steps, state),
        steps,
        wrong,
        lambda: state[1].item() / steps,
    )


def link(bench: Bench, *, to_device: bool) -> CeilingCall:
    """A large page-locked copy."""
    here = bench.table(bench.size(256 << 20), on_host=True)
    there = torch.ones(here.numel(), device=bench.device)
    source, target = (here, there) if to_device else (there, here)
    return CeilingCall(lambda: target.copy_(source, non_blocking=True), here.nbytes)


def launches(bench: Bench) -> CeilingCall:
    """Launches from C++, one after the other without waiting."""
    count = bench.size(10_000, 2)
    return CeilingCall(partial(bench.launch, "launch_nothing", count), count)


def graph_nodes(bench: Bench) -> CeilingCall:
    """Empty kernels in a graph of many."""
    if bench.device != "cuda":
        raise UnsupportedError("no graphs on a CPU")
    count = 1000
    graph = torch.cuda.CUDAGraph()
    bench.launch("launch_nothing", 1)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        bench.launch("launch_nothing", count)
    return CeilingCall(graph.replay, count)


def eager(bench: Bench) -> CeilingCall:
    """torch's smallest operator, one after the other without waiting."""
    one, count = torch.zeros(1, device=bench.device), bench.size(5000, 2)

    def run() -> None:
        for _ in range(count):
            one.add_(1)

    return CeilingCall(run, count)


def multiply(bench: Bench) -> CeilingCall:
    """Single-precision multiplications with addition."""
    rounds = bench.size(8192)
    sums = torch.zeros(bench.threads, device=bench.device)
    one = ctypes.c_float(1.0)
    return CeilingCall(
        partial(bench.launch, "multiply_on", one, one, bench.blocks, rounds, sums),
        2 * CHAINS * rounds * bench.threads,
        lambda: share_unlike(sums, float(CHAINS * rounds)),
    )


def multiply_tiles(bench: Bench) -> CeilingCall:
    """The matrix unit in tf32 by `mma.sync`."""
    rounds = bench.size(4096)
    sums = torch.zeros(bench.threads, device=bench.device)
    return CeilingCall(
        partial(bench.launch, "multiply_tiles_on", bench.blocks, rounds, sums),
        tile_flops(bench.threads, rounds),
        lambda: share_unlike(sums, float(4 * TILES * 8 * rounds)),
    )


def tile_flops(threads: int, rounds: int) -> int:
    """A warp multiplies 16 x 8 by 8 x 8 `TILES` times a round."""
    return threads // 32 * rounds * TILES * 2 * 16 * 8 * 8


def both(value: float) -> tuple[float, float]:
    return value, value


def _ceilings() -> dict[str, Ceiling]:
    rate, flops = "bandwidth", "product_rate"
    found = {
        "device copy, read and written": Ceiling(rate, both(4.3e12), copy),
        "L2 read, 16 MB buffer": Ceiling(rate, both(5.5e12), partial(read_again, requests=2048)),
    }
    for table, assumed in ((0.1e9, None), (1e9, both(4.3e12)), (8e9, both(4.3e12))):
        for width in (32, 64, 128):
            found[f"random {width} B, table of {table / 1e9:g} GB"] = Ceiling(
                rate, assumed, partial(gather, table_bytes=table, width=width)
            )
    for table in (16e6, 147e6):
        size = f"{table / 1e6:g} MB"
        found[f"reduce float4, {size}"] = Ceiling(
            rate, both(2.5e12), partial(reduce, table_bytes=table, lanes=0), (9, 0)
        )
        for lanes, name in ((4, "4 floats by 4 lanes"), (1, "single floats")):
            made = partial(reduce, table_bytes=table, lanes=lanes)
            found[f"reduce {name}, {size}"] = Ceiling(rate, None, made)
    return found | {
        "dependent load, shared memory": Ceiling("", None, chase_shared),
        "dependent load, L2 (16 MB)": Ceiling(
            "", both(0.15e-6), partial(chase, table_bytes=16e6, steps=20_000)
        ),
        "dependent load, memory (1 GB)": Ceiling(
            "", both(0.5e-6), partial(chase, table_bytes=1e9, steps=20_000)
        ),
        "dependent load, memory (8 GB)": Ceiling(
            "", both(0.5e-6), partial(chase, table_bytes=8e9, steps=20_000)
        ),
        "dependent load, mapped host": Ceiling(
            "", both(1.3e-6), partial(chase, table_bytes=256e6, steps=8000, on_host=True)
        ),
        "page-locked copy to the device": Ceiling(rate, both(50e9), partial(link, to_device=True)),
        "page-locked copy from it": Ceiling(rate, both(50e9), partial(link, to_device=False)),
        "mapped host, random 128 B": Ceiling(
            rate, both(45e9), partial(gather, table_bytes=0.5e9, width=128, on_host=True)
        ),
        "mapped host, random 32 B": Ceiling(
            rate, (15e9, 20e9), partial(gather, table_bytes=0.5e9, width=32, on_host=True)
        ),
        "mapped host, 16 MB again and again": Ceiling(
            rate, None, partial(read_again, requests=64, on_host=True)
        ),
        "launch from C++": Ceiling("", both(2.5e-6), launches),
        "graph node": Ceiling("", both(1.2e-6), graph_nodes),
        "eager torch operator": Ceiling("", both(6e-6), eager),
        "fp32 multiply-add": Ceiling(flops, both(67e12), multiply),
        "tf32 mma.sync": Ceiling(flops, both(300e12), multiply_tiles, (8, 0)),
    }


CEILINGS = _ceilings()
"""All assumptions that predictions for a device rest on, those that cost least first."""
WARM = ("L2 read, 16 MB buffer", "dependent load, L2 (16 MB)", "mapped host, 16 MB again and again")
"""Ceilings of caches: they are left warm between calls."""
