"""Iterations on the paper's cluster, from what was counted and timed here: projections only.

A g4dn.metal instance has 8 T4, each on a PCIe port, 96 virtual cores and one 100 Gb/s adapter
(section 6). An iteration of one GPU is made of

- computing: processor seconds here, divided by `speed`;
- sampling: likewise where a GPU samples, else divided by a GPU's share of the virtual cores;
- fetching: rows that its cache misses, gathered by the host and sent over PCIe;
- writing TGN's memories to each other machine, which keep a copy of the graph and its memories;
- the all-reduce of gradients, as a ring.

Nothing overlaps, and no rank waits for a slower one. `speed` is taken by bandwidth of memory or by
arithmetic: the truth for small dense layers lies between.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch

from dgbench.runtime.errors import InvalidInputError, unknown_key
from dgbench.runtime.topology.model import Topology, TopologyLink
from dgbench.runtime.topology.named import PCIE3

PER_MACHINE: Final = 8
CORES: Final = 96 / PER_MACHINE
"""Virtual cores for each GPU."""
NETWORK: Final = 12.5e9
"""Bytes per second of a machine's adapter, printed."""
ALPHA_NET_S: Final = 25e-6
ALPHA_PCIE_S: Final = 5e-6
HOST: Final = 200e9 / PER_MACHINE
"""Bytes per second of host memory for each GPU; assumed."""
T4_BYTES_PER_S: Final = 320e9
T4_FLOPS: Final = 8.1e12
"""Published peaks of a T4: memory, and float32 arithmetic."""

READINGS: Final = ("bandwidth", "arithmetic")
ASSUMED: Final = (
    f"g4dn.metal: {NETWORK / 1e9:g} GB/s a machine (printed), {PCIE3 / 1e9:g} GB/s PCIe a GPU, "
    f"{HOST / 1e9:g} GB/s of host memory a GPU, {ALPHA_NET_S * 1e6:g} us a message (assumed)"
)


def g4dn(ranks: int) -> Topology:
    """The first `ranks` GPUs of a cluster of g4dn.metal; machine after machine.

    Raises:
        InvalidInputError: no rank.
    """
    if ranks < 1:
        raise InvalidInputError(f"'ranks' is {ranks}, needed: at least 1")
    links: list[TopologyLink] = []

    def both(name: str, alpha_s: float, bandwidth: float) -> tuple[int, int]:
        links.extend(TopologyLink(f"{name} {way}", alpha_s, bandwidth) for way in ("out", "in"))
        return len(links) - 2, len(links) - 1

    gpus = [both(f"gpu{i}", ALPHA_PCIE_S, PCIE3) for i in range(ranks)]
    machines = -(-ranks // PER_MACHINE)
    ports = [both(f"machine{m}", ALPHA_NET_S, NETWORK) for m in range(machines)]
    routes: dict[tuple[int, int], tuple[int, ...]] = {}
    for i in range(ranks):
        for j in range(ranks):
            a, b = i // PER_MACHINE, j // PER_MACHINE
            between = () if a == b else (ports[a][0], ports[b][1])
            if i != j:
                routes[i, j] = (gpus[i][0], *between, gpus[j][1])
    return Topology("g4dn.metal", ranks, links, routes, assumed=ASSUMED)


@dataclass(frozen=True, slots=True)
class ClusterMachine:
    """One thread here.

    Attributes:
        bytes_per_s: of a large copy, read and written. flops: of a matrix product in float32.
    """

    bytes_per_s: float
    flops: float

    def speed(self, reading: str) -> float:
        """Speed of a T4 in threads of this machine; raises UnknownKeyError for another
        interpretation."""
        if reading not in READINGS:
            raise unknown_key("reading", reading, READINGS)
        if reading == "bandwidth":
            return T4_BYTES_PER_S / self.bytes_per_s
        return T4_FLOPS / self.flops


def measure_machine() -> ClusterMachine:
    """Time a copy and a matrix product of one thread, the best of a few."""
    x, y = torch.zeros(2, 8 << 20)
    a = torch.ones(512, 512)
    copy, product = [], []
    for _ in range(5):
        begin = time.perf_counter()
        y.copy_(x)
        copy.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        a @ a
        product.append(time.perf_counter() - begin)
    return ClusterMachine(2 * x.numel() * 4 / min(copy), 2 * 512**3 / min(product))


@dataclass(frozen=True, slots=True)
class Iteration:
    """Work of one rank for one batch of its own, measured and counted here.

    Attributes:
        compute_s, sample_s: processor seconds of one thread.
        on_gpu: whether the GPU samples.
        fetched: bytes of rows that a cache misses, or of all rows without one.
        read: bytes of records that a GPU's sampler reads from host memory.
        written: bytes of TGN's memories that the rank writes.
        gradient: bytes of all parameters.
    """

    compute_s: float
    sample_s: float
    on_gpu: bool
    fetched: float
    read: float
    written: float
    gradient: float


@dataclass(frozen=True, slots=True)
class IterationProjection:
    """Seconds of a projected iteration, one part after the other."""

    compute_s: float
    sample_s: float
    fetch_s: float
    exchange_s: float

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.compute_s + self.sample_s + self.fetch_s + self.exchange_s


def project(one: Iteration, ranks: int, speed: float) -> IterationProjection:
    """An iteration on `ranks` GPUs, each with a batch of its own.

    Raises:
        InvalidInputError: no rank, or a speed that is not positive.
    """
    if not speed > 0:
        raise InvalidInputError(f"'speed' is {speed}, needed: more than 0")
    topology = g4dn(ranks)
    ring = np.zeros((ranks, ranks))
    steps = np.zeros((ranks, ranks))
    writes = np.zeros((ranks, ranks))
    for rank in range(ranks):
        if ranks > 1:
            ring[rank, (rank + 1) % ranks] = 2 * one.gradient * (ranks - 1) / ranks
            steps[rank, (rank + 1) % ranks] = 2 * (ranks - 1)
        for first in range(0, ranks, PER_MACHINE):
            other = first + rank % PER_MACHINE
            if first != rank - rank % PER_MACHINE and other < ranks:
                writes[rank, other] = one.written
    return IterationProjection(
        compute_s=one.compute_s / speed,
        sample_s=one.sample_s / (speed if one.on_gpu else CORES),
        fetch_s=(one.fetched + one.read) / PCIE3 + 2 * one.fetched / HOST,
        exchange_s=topology.time(ring, steps) + topology.time(writes),
    )
