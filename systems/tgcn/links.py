"""Links between devices, their bandwidth and distance, for planning the ring (sections 4.2, 4.4).

The paper says of its machine: two fully connected groups of four, some links between the groups,
"two V2 and two V1" links a GPU. That is a DGX-1 with V100: six NVLink 2 bricks a GPU to four
neighbours, two of them by two bonded bricks. Numbers of GPUs vary between machines, so the matrix
is read where there is one (`nvidia-smi topo -m`), and the published one stands for it elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from dgbench.runtime.errors import InvalidInputError, unknown_key
from dgbench.runtime.topology import LinkMatrix, dgx1_v100, parse_link_matrix, read_link_matrix
from dgbench.runtime.topology.matrix import bricks
from dgbench.runtime.topology.model import Topology, TopologyLink
from dgbench.runtime.topology.named import (
    ALPHA_GPU_S,
    DGX1_FILE,
    GB,
    NVLINK2_BRICK,
    NVSWITCH_H200,
    PCIE3,
    QPI,
)

PER_SWITCH: Final = 2
"""GPUs below one PCIe switch (section 6.7)."""
SWITCHES_PER_SOCKET: Final = 2
SHARES: Final = {
    "X": 1,
    "PIX": 1,
    "PXB": 1,
    "PHB": PER_SWITCH,
    "NODE": PER_SWITCH,
    "SYS": PER_SWITCH * SWITCHES_PER_SOCKET,
}
"""GPUs that share a way through the host when all of them send."""
SWITCH_BRICKS: Final = {"nvswitch-v100": 6, "nvswitch-h200": 18}
"""Bricks of a GPU to the switches: V100 in a DGX-2 (NVIDIA, DGX-2 data sheet, 2018: 300 GB/s both
ways), H200 in an HGX board (H200 data sheet: 900 GB/s both ways)."""
SOURCES: Final = (
    f"{NVLINK2_BRICK / GB:g} GB/s and direction per NVLink 2 brick, {NVSWITCH_H200 / GB:g} of an "
    f"H200's port (published peaks); {PCIE3 / GB:g} GB/s of a PCIe 3.0 x16 port (what large "
    f"copies reach), {QPI / GB:g} between sockets (published peak); {ALPHA_GPU_S * 1e6:g} us a "
    "message (assumed)"
)


@dataclass(frozen=True, slots=True)
class Links:
    """The links of G devices.

    Attributes:
        name: what the machine is called.
        matrix: `X`, `NVn` or a way through the host, for every pair; the same both ways.
        brick: bytes per second and direction of one NVLink brick.
        pcie: bytes per second and direction of a GPU's PCIe port, and of a switch's.
        switched: NVLink goes to a switch, so that a device's port is shared by all its pairs.
    """

    name: str
    matrix: LinkMatrix
    brick: float = NVLINK2_BRICK
    pcie: float = PCIE3
    switched: bool = False

    @property
    def size(self) -> int:
        """G."""
        return len(self.matrix)

    def bricks(self, i: int, j: int) -> int:
        """NVLink bricks between two devices, 0 without a direct link."""
        return 0 if i == j else bricks(self.matrix[i][j])

    def hops(self, i: int, j: int) -> int:
        """NVLinks on the shortest way from one device to another, 0 to itself.

        Returns:
            -1 where NVLink does not lead there at all.
        """
        seen, edge, count = {i}, {i}, 0
        while edge:
            if j in edge:
                return count
            near = {b for a in edge for b in range(self.size) if self.bricks(a, b)}
            edge = near - seen
            seen |= near
            count += 1
        return -1

    def bandwidth(self, i: int, j: int) -> float:
        """Bytes per second and direction of one transfer that is alone on its way.

        Over two hops each byte takes two links, one after the other, and a relay takes part: half
        the narrower one, which is the double cost of section 4.2. Without NVLink it is a port's
        rate below one PCIe switch, and beyond it a share of what all GPUs of a switch, or of a
        socket, send that way at a time.
        """
        if self.bricks(i, j):
            return self.bricks(i, j) * self.brick
        legs = [
            min(self.bricks(i, k), self.bricks(k, j))
            for k in range(self.size)
            if self.bricks(i, k) and self.bricks(k, j)
        ]
        if legs:
            return max(legs) * self.brick / 2
        return self.pcie / SHARES[self.matrix[i][j]]

    def first(self, size: int) -> Links:
        """The first G devices of this machine.

        Raises:
            InvalidInputError: more than there are, or none.
        """
        return self.chosen(range(size))

    def chosen(self, devices: Sequence[int]) -> Links:
        """These devices of this machine, in this order.

        Raises:
            InvalidInputError: no device, one that is not there, or one twice.
        """
        wanted = list(devices)
        known = wanted and len(set(wanted)) == len(wanted) and min(wanted) >= 0
        if not known or max(wanted) >= self.size:
            raise InvalidInputError(f"'devices' is {wanted}, {self.name} has {self.size} devices")
        matrix = tuple(tuple(self.matrix[i][j] for j in wanted) for i in wanted)
        return Links(self.name, matrix, self.brick, self.pcie, self.switched)

    def relabelled(self, names: Sequence[int]) -> Links:
        """The same machine where device i is called `names[i]`.

        Raises:
            InvalidInputError: not a permutation of the devices.
        """
        if sorted(names) != list(range(self.size)):
            raise InvalidInputError(f"'names' is {list(names)}, needed: each of {self.size} once")
        return self.chosen([list(names).index(i) for i in range(self.size)])

    def topology(self, *, p2p: bool = True, relay: bool = True) -> Topology:
        """The ways that bytes take from device to device, for `runtime.topology`.

        Args:
            p2p: by NVLink where there is one; else everything goes through the host.
            relay: pairs without a direct link talk through a third GPU where one is next to both,
                else through the host.
        """
        if p2p and self.switched:
            return _switched(self)
        linked = p2p and any(self.bricks(i, j) for i in range(self.size) for j in range(i))
        if linked and relay and all(0 <= self.hops(i, j) <= 2 for i, j in _pairs(self.size)):
            return dgx1_v100(self.matrix, brick=self.brick, pcie=self.pcie)
        return _through_host(self, p2p=p2p)


def host_ways(count: int) -> LinkMatrix:
    """A matrix without NVLink: two GPUs a switch, two switches a socket."""

    def way(i: int, j: int) -> str:
        if i == j:
            return "X"
        a, b = i // PER_SWITCH, j // PER_SWITCH
        if a == b:
            return "PIX"
        return "PHB" if a // SWITCHES_PER_SOCKET == b // SWITCHES_PER_SOCKET else "SYS"

    return tuple(tuple(way(i, j) for j in range(count)) for i in range(count))


def _all_linked(count: int, each: int) -> LinkMatrix:
    return tuple(tuple("X" if i == j else f"NV{each}" for j in range(count)) for i in range(count))


MACHINES: Final = ("dgx1-v100", "nvswitch-v100", "nvswitch-h200", "pcie")


def machine(name: str = "dgx1-v100", size: int = 8) -> Links:
    """A machine by name.

    Args:
        name: `dgx1-v100`, the paper's as published; `nvswitch-v100` and `nvswitch-h200`, every
            pair by a switch; `pcie`, two GPUs a PCIe switch and no NVLink.
        size: devices; of a `dgx1-v100` the first of its eight.

    Raises:
        UnknownKeyError: another name. InvalidInputError: a number of devices it cannot have.
    """
    if name not in MACHINES:
        raise unknown_key("machine", name, MACHINES)
    if size < 1:
        raise InvalidInputError(f"'size' is {size}, needed: at least 1")
    if name == "dgx1-v100":
        return Links(name, read_link_matrix(DGX1_FILE)).first(size)
    if name == "pcie":
        return Links(name, host_ways(size))
    each = SWITCH_BRICKS[name]
    brick = NVLINK2_BRICK if name == "nvswitch-v100" else NVSWITCH_H200 / each
    return Links(name, _all_linked(size, each), brick=brick, switched=True)


def parse(text: str, *, name: str = "this machine") -> Links:
    """Links from what `nvidia-smi topo -m` prints. NVLink to a switch cannot be told from pairs
    by the matrix; it is taken to be one where more bricks are printed than a GPU has for all pairs.

    Raises:
        InvalidInputError: no such table.
    """
    matrix = parse_link_matrix(text, source=name)
    most = max((sum(bricks(entry) for entry in row) for row in matrix), default=0)
    linked = all(bricks(matrix[i][j]) for i, j in _pairs(len(matrix)))
    return Links(name, matrix, switched=linked and most > max(SWITCH_BRICKS.values()))


def hop_matrix(links: Links) -> np.ndarray:
    """`Links.hops` of all pairs, int64[G, G]."""
    every = range(links.size)
    return np.array([[links.hops(i, j) for j in every] for i in every], dtype=np.int64)


def _pairs(size: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(size) for j in range(size) if i != j]


def _switched(links: Links) -> Topology:
    made: list[TopologyLink] = []
    for i in range(links.size):
        port = max((links.bricks(i, j) for j in range(links.size)), default=1) or 1
        made += [
            TopologyLink(f"gpu{i} {way}", ALPHA_GPU_S, port * links.brick) for way in ("out", "in")
        ]
    routes = {(i, j): (2 * i, 2 * j + 1) for i, j in _pairs(links.size)}
    return Topology(links.name, links.size, made, routes, assumed=SOURCES)


def _through_host(links: Links, *, p2p: bool) -> Topology:
    """Bytes are written to host memory and read from it, over switches that GPUs share."""
    made: list[TopologyLink] = []

    def both(name: str, bandwidth: float) -> tuple[int, int]:
        made.extend(TopologyLink(f"{name} {way}", ALPHA_GPU_S, bandwidth) for way in ("out", "in"))
        return len(made) - 2, len(made) - 1

    size = links.size
    gpus = [both(f"gpu{i} pcie", links.pcie) for i in range(size)]
    switches = [both(f"switch{s}", links.pcie) for s in range(-(-size // PER_SWITCH))]
    routes: dict[tuple[int, int], tuple[int, ...]] = {}
    for i, j in _pairs(size):
        a, b = switches[i // PER_SWITCH], switches[j // PER_SWITCH]
        if p2p and links.bricks(i, j):
            wide = links.bricks(i, j) * links.brick
            made.append(TopologyLink(f"gpu{i} > gpu{j}", ALPHA_GPU_S, wide))
            routes[i, j] = (len(made) - 1,)
        elif p2p and links.matrix[i][j] in ("PIX", "PXB"):
            routes[i, j] = (gpus[i][0], gpus[j][1])
        else:
            routes[i, j] = (gpus[i][0], a[0], b[1], gpus[j][1])
    name = links.name if p2p else f"{links.name}, through the host"
    return Topology(name, size, made, routes, assumed=SOURCES)
