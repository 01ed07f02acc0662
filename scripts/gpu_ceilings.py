"""Limits of a device, one row for each assumption behind the predictions of its operators.

    python scripts/gpu_ceilings.py --out ceilings.jsonl   on the device
    python scripts/gpu_ceilings.py --plan                 what would be measured; needs no device

Copies, reads of the second-level cache, random requests of 32, 64 and 128 bytes, reductions, chains
of dependent loads, page-locked and mapped memory of the host, launches, and the rates of single
precision and of the matrix unit. The kernels are in gpu_ceilings.cu, compiled for the device that
is here when the script begins (or before: --library), and driven through torch's memory. What they
loaded or added up is compared with what it must be: a row that is wrong has failed.

Each row: what, the value assumed for an H200, the value measured here, and measured over assumed,
whose meaning (more is better, or less) follows from the unit. One JSON line a row goes to --out.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from gpu_ceilings_bench import Bench, BenchRefused, c64, opened, request_bytes, same
from gpu_timing import LATE, Rows, need_device, wait
from torch import Tensor

from dgbench.runtime.statistics import median

IN_FLIGHT, CHAINS, TILES, RING = 4, 16, 8, 1024
"""As in the source of the kernels."""
LINE = 128
"""Bytes between the entries of a chase: a line each."""
COMPARED = 8
"""Steps of a chase that are made on the host too."""


@dataclass(frozen=True)
class CeilingRow:
    """One assumption.

    Attributes:
        what: for people. unit: of both values; us and clocks count down, the others up.
        assumed: lowest and highest value, None where nothing was assumed.
        measure: bench -> value in `unit`.
        needs: least compute capability.
    """

    what: str
    unit: str
    assumed: tuple[float, float] | None
    measure: Callable[[Bench], float]
    needs: tuple[int, int] = (0, 0)


def copy_rate(bench: Bench) -> float:
    """TB/s that a copy reads and writes."""
    source = bench.table(bench.size(1 << 30))
    target = torch.empty_like(source)
    took = median(bench.timer.on_device(lambda: target.copy_(source)))
    return 2 * source.nbytes / took / 1e12


def cache_size(bench: Bench) -> float:
    if bench.device == "cpu":
        raise BenchRefused("a CPU")
    return torch.cuda.get_device_properties(0).L2_cache_size / 1e6


def read_again(bench: Bench, requests: int, *, on_host: bool = False) -> float:
    """Bytes a second read from a buffer of 16 MB again and again."""
    data = bench.table(bench.size(16e6, 64) // 16 * 16, on_host=on_host)
    requests = bench.size(requests, IN_FLIGHT) // IN_FLIGHT * IN_FLIGHT
    sums = torch.zeros(bench.threads, device=bench.device)
    took = bench.seconds("read_over_on", data, c64(data.nbytes // 16), bench.blocks, requests, sums)
    same(sums, 4.0 * requests, "read_over")
    return request_bytes(bench.threads, requests, 16) / took


def read_cached(bench: Bench) -> float:
    return read_again(bench, 2048) / 1e12


def read_mapped(bench: Bench) -> float:
    """GB/s of mapped memory that fits in the cache: above the link's if it stays there."""
    return read_again(bench, 64, on_host=True) / 1e9


def gathered(bench: Bench, table_bytes: float, width: int, *, on_host: bool = False) -> float:
    """Bytes a second of random requests, all lanes of a row together."""
    table = bench.table(bench.size(table_bytes, width) // width * width, on_host=on_host)
    count = bench.size(64 if on_host else 1024, IN_FLIGHT) // IN_FLIGHT * IN_FLIGHT
    sums = torch.zeros(bench.threads, device=bench.device)

    def run() -> None:
        bench.seed += 1
        bench.launch("gather_on", table, c64(table.nbytes // width), width, bench.blocks, count,
                     ctypes.c_uint32(bench.seed * 2654435761), sums)  # fmt: skip

    took = median(bench.timer.on_device(run))
    same(sums, 4.0 * count, "gather")
    return request_bytes(bench.threads, count, 16) / took


def random_rate(bench: Bench, table_bytes: float, width: int) -> float:
    return gathered(bench, table_bytes, width) / 1e12


def mapped_rate(bench: Bench, width: int) -> float:
    return gathered(bench, 0.5e9, width, on_host=True) / 1e9


def reduced(bench: Bench, table_bytes: float, lanes: int) -> float:
    """TB/s of payload that is added to random rows of four floats; lanes 0: as vectors."""
    table = bench.table(bench.size(table_bytes, 16) // 16 * 16, fill=0.0)
    count = bench.size(256)
    calls = 0

    def run() -> None:
        nonlocal calls
        calls += 1
        bench.launch("reduce_on", table, c64(table.nbytes // 16), lanes, bench.blocks, count,
                     ctypes.c_uint32(calls * 2654435761))  # fmt: skip

    took = median(bench.timer.on_device(run))
    payload = request_bytes(bench.threads, count, 16 if lanes == 0 else 4)
    added = table.sum(dtype=torch.float64).item()
    if added != calls * payload / 4:
        raise RuntimeError(f"reduce: {added} were added, not {calls * payload / 4}")
    return payload / took / 1e12


def cycle(nodes: int, device: str, seed: int = 1) -> Tensor:
    """int32[nodes], the node after each in one random cycle through all of them."""
    draw = torch.Generator(device).manual_seed(seed)
    order = torch.randperm(nodes, device=device, generator=draw)
    following = torch.empty(nodes, dtype=torch.int32, device=device)
    following[order] = order.roll(-1).int()
    return following


def chased(bench: Bench, table_bytes: float, steps: int, *, on_host: bool = False) -> float:
    """Microseconds of a load that waits for the one before."""
    nodes = bench.size(table_bytes, 64 * LINE) // LINE
    table = bench.table(nodes * LINE, on_host=on_host, fill=0.0).view(torch.int32)
    following = cycle(nodes, bench.device)
    table.view(nodes, -1)[:, 0] = following.to(table.device)
    if table.nbytes < 64e6:
        table.sum()  # into the cache
    else:
        bench.table(bench.size(256e6))  # what was just written is to leave it
    steps = bench.size(steps, 16)
    state = followed(bench, following, table, LINE // 4)
    return 1e6 * bench.seconds("chase_on", table, LINE // 4, steps, state) / steps


def followed(bench: Bench, following: Tensor, table: Tensor, stride: int) -> Tensor:
    """The state of a chase after its first few steps, which were compared with `following`."""
    state, at = torch.zeros(2, dtype=torch.int64, device=bench.device), 0
    bench.launch("chase_on", table, stride, COMPARED, state)
    for _ in range(COMPARED):
        at = int(following[at])
    if state[0].item() != at:
        raise RuntimeError(f"chase: after {COMPARED} steps it is at {state[0].item()}, not {at}")
    return state


def chased_shared(bench: Bench) -> float:
    """Clocks of a load from shared memory that waits for the one before."""
    following = cycle(RING, bench.device)
    steps = bench.size(65_536, 16)
    state = followed(bench, following, following, 0)
    bench.seconds("chase_on", following, 0, steps, state)
    return state[1].item() / steps


def link_rate(bench: Bench, to_device: bool) -> float:
    """GB/s of a large page-locked copy."""
    here = bench.table(bench.size(256 << 20), on_host=True)
    there = torch.ones(here.numel(), device=bench.device)
    source, target = (here, there) if to_device else (there, here)
    took = median(bench.timer.on_device(lambda: target.copy_(source, non_blocking=True)))
    return here.nbytes / took / 1e9


def launch_cost(bench: Bench) -> float:
    """Microseconds of a launch from C++, one after the other without waiting."""
    count = bench.size(2000, 2)
    took = bench.timer.of_call(lambda: bench.launch("launch_nothing", count))
    return 1e6 * median(took) / count


def node_cost(bench: Bench) -> float:
    """Microseconds of an empty kernel in a graph of many."""
    if bench.device == "cpu":
        raise BenchRefused("no graphs on a CPU")
    count = 1000
    graph = torch.cuda.CUDAGraph()
    bench.launch("launch_nothing", 1)
    wait(bench.device)
    with torch.cuda.graph(graph):
        bench.launch("launch_nothing", count)
    return 1e6 * median(bench.timer.on_device(graph.replay)) / count


def eager_cost(bench: Bench) -> float:
    """Microseconds of torch's smallest operator, one after the other without waiting."""
    one, count = torch.zeros(1, device=bench.device), bench.size(1000, 2)

    def run() -> None:
        for _ in range(count):
            one.add_(1)

    return 1e6 * median(bench.timer.of_call(run)) / count


def multiplied(bench: Bench) -> float:
    """TFLOP/s of single-precision multiplications with addition."""
    rounds = bench.size(8192)
    sums = torch.zeros(bench.threads, device=bench.device)
    one = ctypes.c_float(1.0)
    took = bench.seconds("multiply_on", one, one, bench.blocks, rounds, sums)
    same(sums, float(CHAINS * rounds), "multiply")
    return 2 * CHAINS * rounds * bench.threads / took / 1e12


def multiplied_tiles(bench: Bench) -> float:
    """TFLOP/s of the matrix unit in tf32 by `mma.sync`."""
    rounds = bench.size(4096)
    sums = torch.zeros(bench.threads, device=bench.device)
    took = bench.seconds("multiply_tiles_on", bench.blocks, rounds, sums)
    same(sums, float(4 * TILES * 8 * rounds), "multiply_tiles")
    return tile_flops(bench.threads, rounds) / took / 1e12


def tile_flops(threads: int, rounds: int) -> int:
    """A warp multiplies 16 x 8 by 8 x 8 `TILES` times a round."""
    return threads // 32 * rounds * TILES * 2 * 16 * 8 * 8


def both(value: float) -> tuple[float, float]:
    return value, value


def rows() -> list[CeilingRow]:
    """All assumptions, those that cost least first."""
    found = [
        CeilingRow("L2 cache, as reported", "MB", both(60), cache_size),
        CeilingRow("device copy, read and written", "TB/s", both(4.3), copy_rate),
        CeilingRow("L2 read, 16 MB buffer", "TB/s", both(5.5), read_cached),
    ]
    for table, assumed in ((0.1e9, None), (1e9, both(4.3)), (8e9, both(4.3))):
        for width in (32, 64, 128):
            found.append(CeilingRow(f"random {width} B, table of {table / 1e9:g} GB", "TB/s",
                                    assumed,
                             partial(random_rate, table_bytes=table, width=width)))  # fmt: skip
    for table in (16e6, 147e6):
        found.append(CeilingRow(f"reduce float4, {table / 1e6:g} MB", "TB/s", both(2.5),
                         partial(reduced, table_bytes=table, lanes=0), (9, 0)))  # fmt: skip
        for lanes, name in ((4, "4 floats by 4 lanes"), (1, "single floats")):
            found.append(CeilingRow(f"reduce {name}, {table / 1e6:g} MB", "TB/s", None,
                             partial(reduced, table_bytes=table, lanes=lanes)))  # fmt: skip
    found += [
        CeilingRow("dependent load, shared memory", "clocks", both(30), chased_shared),
        CeilingRow("dependent load, L2 (16 MB)", "us", both(0.15),
            partial(chased, table_bytes=16e6, steps=20_000)),
        CeilingRow("dependent load, memory (1 GB)", "us", both(0.5),
            partial(chased, table_bytes=1e9, steps=20_000)),
        CeilingRow("dependent load, memory (8 GB)", "us", both(0.5),
            partial(chased, table_bytes=8e9, steps=20_000)),
        CeilingRow("dependent load, mapped host", "us", both(1.3),
            partial(chased, table_bytes=256e6, steps=8000, on_host=True)),
        CeilingRow("page-locked copy to the device", "GB/s", both(50),
                   partial(link_rate, to_device=True)),
        CeilingRow("page-locked copy from it", "GB/s", both(50),
                   partial(link_rate, to_device=False)),
        CeilingRow("mapped host, random 128 B", "GB/s", both(45), partial(mapped_rate, width=128)),
        CeilingRow("mapped host, random 32 B", "GB/s", (15, 20), partial(mapped_rate, width=32)),
        CeilingRow("mapped host, 16 MB again and again", "GB/s", None, read_mapped),
        CeilingRow("launch from C++", "us", both(2.5), launch_cost),
        CeilingRow("graph node", "us", both(1.2), node_cost),
        CeilingRow("eager torch operator", "us", both(6), eager_cost),
        CeilingRow("fp32 multiply-add", "TFLOP/s", both(67), multiplied),
        CeilingRow("tf32 mma.sync", "TFLOP/s", both(300), multiplied_tiles, (8, 0)),
    ]  # fmt: skip
    return found


def shown(row: dict[str, Any]) -> str:
    value = row.get("failed", "")
    if "measured" in row:
        ratio = "" if row["ratio"] is None else f"{row['ratio']:8.2f}x"
        value = f"{row['measured']:10.3g}{ratio}"
    return f"{row['what']:36}{row['unit']:9}{span(row['assumed']):>8} {value}"


def span(values: tuple[float, float] | None) -> str:
    if values is None:
        return "-"
    return "-".join(f"{value:g}" for value in dict.fromkeys(values))


def row_of(row: CeilingRow, bench: Bench | None, over: bool = False) -> dict[str, Any]:
    """Measure a row, or say why not."""
    found: dict[str, Any] = {"what": row.what, "unit": row.unit, "assumed": row.assumed}
    begin = time.monotonic()
    try:
        if bench is None:
            raise BenchRefused("not measured")
        if over:
            raise BenchRefused(LATE)
        if bench.device == "cuda" and torch.cuda.get_device_capability() < row.needs:
            raise BenchRefused("needs sm_" + "".join(map(str, row.needs)))
        value = row.measure(bench)
        middle = sum(row.assumed) / 2 if row.assumed else None
        found |= {"measured": value, "ratio": value / middle if middle else None}
    except (BenchRefused, RuntimeError, MemoryError) as error:
        found |= {"failed": str(error)[:300], "refused": isinstance(error, BenchRefused)}
    found["took_s"] = time.monotonic() - begin
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="ceilings.jsonl", help="file for the rows, JSON lines")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--library", help="the kernels, compiled before")
    parser.add_argument("--plan", action="store_true", help="say what is assumed; measure nothing")
    parser.add_argument("--shrink", type=int, default=1, help="divide all sizes by this")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=60, help="begin nothing after this long")
    options = parser.parse_args()
    out = Rows(options.out, options.seconds)
    if options.plan:
        print(*(shown(row_of(row, None)) for row in rows()), sep="\n")
        return
    need_device(options.device)
    with tempfile.TemporaryDirectory() as folder:
        try:
            bench = opened(options, Path(folder))
        except (BenchRefused, OSError) as error:
            sys.exit(str(error))
        name = torch.cuda.get_device_name() if options.device == "cuda" else "the CPU"
        out.add(f"{name}; assumed are the values of an H200", what="device", name=name)
        print(f"{'what':36}{'unit':9}{'assumed':>8} {'measured':>10}   ratio")
        kept = out.kept("what")
        for row in rows():
            if row.what in kept:
                continue
            found = row_of(row, bench, out.over)
            out.failed += "failed" in found and not found["refused"]
            out.add(shown(found), **found)
            if options.device == "cuda":
                torch.cuda.empty_cache()
    sys.exit(out.status)


if __name__ == "__main__":
    main()
