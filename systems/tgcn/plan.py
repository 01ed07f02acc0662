"""Memory of a training of any size, by count alone: bytes of each region, and omitted parts.

Nothing is allocated. Rows and edges are those of the code here: state and what waits of a vertex
(`models/streaming/state.py`), pairs and shares of an interval (`intervals.py`), three vectors of a
visiting row (`regions.py`). Where an amount hangs on the edges themselves, the most that it can be
is taken: an interval touches a vertex once for every end of its edges and negatives, and no more
vertices than there are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from dgbench.runtime.errors import InvalidInputError, unknown_key
from dgbench.systems.base.stream_data import TRAIN

FLOAT, DOUBLE, INDEX, ID = 4, 8, 4, 8
VECTORS: Final = {"paper": 5, "tgcn": 5, "dygnn": 5, "jodie": 5}
"""State of a vertex: C^s, h^s, C^g, h^g and E (section 4.5 counts the same); of JODIE the two
embeddings, the static code, and embedding and code of the last item."""
WAITING: Final = {"paper": 0, "tgcn": 2, "dygnn": 4, "jodie": 3}
"""Vectors of what waits for a vertex: sums over its partners by role; of stand-alone DyGNN also
what neighbours pushed, of JODIE also codes."""
PLANES_READ, PLANES_ADDED = 1, 2
"""Vectors of a visiting row that are read, and that are added to: its embedding; its gradient and
the sum over its partners."""
ACTIVATIONS: Final = 48
"""Vectors that a refresh keeps of a row for its gradients, both roles together, at most."""


@dataclass(frozen=True, slots=True)
class ModelSize:
    """A graph and a network, by their sizes.

    Attributes:
        vertices, edges: N and E, all edges. hidden: H. features: floats of an edge.
    """

    vertices: int
    edges: int
    hidden: int = 64
    features: int = 0

    def __post_init__(self) -> None:
        if min(self.vertices, self.edges, self.hidden, self.features) < 0 or not self.hidden:
            raise InvalidInputError(f"{self} has a negative size or no hidden floats")

    @property
    def vector(self) -> int:
        """Bytes of one vector of a vertex."""
        return FLOAT * self.hidden


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes by what they are for.

    Attributes:
        device: of one device. host: of the host, all devices together.
    """

    device: dict[str, int]
    host: dict[str, int]

    @property
    def device_bytes(self) -> int:
        """All regions of a device."""
        return sum(self.device.values())

    @property
    def host_bytes(self) -> int:
        """All of the host."""
        return sum(self.host.values())

    def fits(self, device: int, host: int | None = None) -> bool:
        """Return True if it fits a device and a host of so many bytes."""
        return self.device_bytes <= device and (host is None or self.host_bytes <= host)


def state_bytes(size: ModelSize, system: str = "tgcn") -> int:
    """Bytes of a vertex: its state and two times, and what waits with counts and times.

    Args:
        system: `tgcn`, `dygnn`, `jodie` as they are here, or `paper`: five vectors, two times.

    Raises:
        UnknownKeyError: another system.
    """
    if system not in VECTORS:
        raise unknown_key("system", system, VECTORS)
    waits = WAITING[system]
    clocks = 2 * DOUBLE + (2 * INDEX + 2 * DOUBLE if waits else 0)
    return (VECTORS[system] + waits) * size.vector + clocks


def parameter_bytes(size: ModelSize) -> int:
    """Weights of DyGNN with gradients and two moments of the optimiser each."""
    h = size.hidden
    cell = h * h + h + 4 * h * 2 * h + 4 * h + 1
    return 4 * FLOAT * (2 * (2 * h * h + h) + 2 * cell + 2 * (h * h + h))


@dataclass(frozen=True, slots=True)
class Cut:
    """Cut of a graph over devices, intervals and parts.

    Attributes:
        devices: G. intervals: T of an epoch. share: of the edges that is sampled.
        parts: parts that *one* device goes through where it holds a part at a time and the rest
            waits in host memory; 1: what a device owns stays there.
        imbalance: edges of the largest grid, in means.
        negatives: negative destinations of each edge.
    """

    devices: int = 1
    intervals: int = 1
    share: float = 0.5
    parts: int = 1
    imbalance: float = 1.0
    negatives: int = 1

    def __post_init__(self) -> None:
        if min(self.devices, self.intervals, self.parts) < 1 or not 0 < self.share <= 1:
            raise InvalidInputError(f"{self}: counts must be 1 or more, the share in (0, 1]")
        if self.parts > 1 and self.devices > 1:
            raise InvalidInputError(f"{self}: one device goes through parts, or several own one")

    @property
    def grids(self) -> int:
        """Parts of an interval's vertices, by source and by destination."""
        return self.devices * self.parts


def trained(size: ModelSize, cut: Cut) -> int:
    """Edges that an epoch trains on: the sampled share of the first 80 %."""
    return round(size.edges * TRAIN * cut.share)


def touched(size: ModelSize, cut: Cut) -> int:
    """Rows of an interval at most, all parts together."""
    ends = (2 + cut.negatives) * -(-trained(size, cut) // cut.intervals)
    return min(size.vertices, ends)


def tgcn_memory(size: ModelSize, cut: Cut) -> MemoryPlan:
    """Three regions of each device, and the host (section 4.3).

    R1 has parameters and the state of the owned part; refreshing rows of an interval keeps
    activations beside it. R2 and R3 have a grid's pairs and room for visiting rows each.
    """
    grids = cut.grids
    part = -(-size.vertices // grids)
    rows = min(part, -(-touched(size, cut) // grids))
    edges = -(-trained(size, cut) // cut.intervals)
    pairs = min(edges, int(cut.imbalance * edges / grids**2) + 1) * (1 + cut.negatives)
    region = {
        "pairs": pairs * 2 * INDEX,
        "visiting": rows * (PLANES_READ + PLANES_ADDED) * size.vector if grids > 1 else 0,
    }
    device = {
        "R1 parameters": parameter_bytes(size),
        "R1 state": part * state_bytes(size),
        "R1 activations": rows * ACTIVATIONS * size.vector,
        **{f"R2 {name}": nbytes for name, nbytes in region.items()},
        **{f"R3 {name}": nbytes for name, nbytes in region.items()},
    }
    if cut.parts > 1:  # the next part comes while this one is trained
        device["R3 state"] = part * state_bytes(size)
    stored = trained(size, cut)
    host = {
        "edges": stored * (2 * ID + DOUBLE + FLOAT * size.features),
        "grids": stored * (ID + (1 + cut.negatives) * 2 * INDEX),
        "state": size.vertices * state_bytes(size) if cut.parts > 1 else 0,
    }
    return MemoryPlan(device, host)


def baseline_memory(size: ModelSize, system: str, *, padding: float = 1.0) -> MemoryPlan:
    """Memory of DyGNN and JODIE on their one GPU (section 6.1, as the paper runs them): all.

    Args:
        system: `dygnn`, `jodie` as here, or `paper`, with the smallest state that counts.
        padding: entries of batches that are made as long as the longest, per edge.

    Raises:
        UnknownKeyError: another system. InvalidInputError: padding below 1.
    """
    if padding < 1:
        raise InvalidInputError(f"'padding' is {padding}, needed: 1 or more")
    record = 2 * ID + DOUBLE + FLOAT * size.features
    return MemoryPlan(
        {
            "state": size.vertices * state_bytes(size, system),
            "edges": size.edges * record,
            "padding": int((padding - 1) * size.edges) * 2 * ID,
            "parameters": parameter_bytes(size),
        },
        {"edges": size.edges * record},
    )


def fewest(size: ModelSize, cut: Cut, device: int, what: str, most: int = 4096) -> int | None:
    """The fewest devices, parts or intervals with which T-GCN fits into devices of so many bytes.

    Args:
        what: `devices`, `parts` or `intervals`; the others stay as in `cut`. Found by doubling and
            halving, as every one of them only makes regions smaller.

    Returns:
        None where `most` are not enough.

    Raises:
        UnknownKeyError: something else.
    """
    if what not in ("devices", "parts", "intervals"):
        raise unknown_key("what", what, ("devices", "parts", "intervals"))

    def fits(count: int) -> bool:
        return tgcn_memory(size, replace(cut, **{what: count})).fits(device)

    high = 1
    while high < most and not fits(high):
        high = min(2 * high, most)
    if not fits(high):
        return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def table(maps: dict[str, MemoryPlan], device: int) -> str:
    """Memory of contenders as text, a line each, with what decides."""
    lines = [f"{'':28}{'device':>10}{'host':>10}  largest"]
    for name, memory in maps.items():
        largest = max(memory.device, key=memory.device.__getitem__)
        share = memory.device[largest] / max(1, memory.device_bytes)
        verdict = "" if memory.fits(device) else f", OOM at {device / 2**30:.0f} GiB"
        lines.append(
            f"{name:28}{memory.device_bytes / 1e9:8.1f}GB{memory.host_bytes / 1e9:8.1f}GB  "
            f"{largest} ({share:.0%}){verdict}"
        )
    return "\n".join(lines)
