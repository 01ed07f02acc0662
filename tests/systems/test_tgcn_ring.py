"""Link matrices, hops, and the best ring against all rings."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.runtime.errors import InvalidInputError, UnknownKeyError
from dgbench.systems.tgcn.links import MACHINES, Links, hop_matrix, machine, parse
from dgbench.systems.tgcn.ring import (
    LITERAL,
    RELABELLED,
    RingQuality,
    best_ring,
    pairs,
    quality,
)

DGX1 = """
        GPU0    GPU1    GPU2    GPU3    GPU4    GPU5    GPU6    GPU7    mlx5_0  CPU Affinity
GPU0     X      NV1     NV1     NV2     NV2     SYS     SYS     SYS     PIX     0-19,40-59
GPU1    NV1      X      NV2     NV1     SYS     NV2     SYS     SYS     PIX     0-19,40-59
GPU2    NV1     NV2      X      NV2     SYS     SYS     NV1     SYS     PHB     0-19,40-59
GPU3    NV2     NV1     NV2      X      SYS     SYS     SYS     NV1     PHB     0-19,40-59
GPU4    NV2     SYS     SYS     SYS      X      NV1     NV1     NV2     SYS     20-39,60-79
GPU5    SYS     NV2     SYS     SYS     NV1      X      NV2     NV1     SYS     20-39,60-79
GPU6    SYS     SYS     NV1     SYS     NV1     NV2      X      NV2     SYS     20-39,60-79
GPU7    SYS     SYS     SYS     NV1     NV2     NV1     NV2      X      SYS     20-39,60-79
mlx5_0  PIX     PIX     PHB     PHB     SYS     SYS     SYS     SYS      X

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes
  NV#  = Connection traversing a bonded set of # NVLinks
"""

PCIE = """
\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity
GPU0\t X \tPHB\t0-15\t0
GPU1\tPHB\t X \t0-15\t0
"""


def switched(count: int, entry: str) -> str:
    """Printed matrix of GPUs on NVSwitch: every pair has all bricks of a GPU."""
    names = [f"GPU{i}" for i in range(count)]
    lines = ["\t" + "\t".join(names) + "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID"]
    for i, name in enumerate(names):
        row = "\t".join(" X " if i == j else entry for j in range(count))
        lines.append(f"{name}\t{row}\t0-95\t0\t\tN/A")
    return "\n".join(lines) + "\n\nLegend:\n\n  X    = Self\n"


def doubled(links: Links, ring: tuple[int, ...]) -> int:
    return sum(links.bricks(a, b) == 2 for side in pairs(ring) for a, b in side)


def test_the_published_matrix_is_what_the_paper_describes() -> None:
    links = machine()
    assert links.matrix == parse(DGX1).matrix
    for i in range(8):
        wide = sorted(links.bricks(i, j) for j in range(8) if links.bricks(i, j))
        assert wide == [1, 1, 2, 2]
        group = range(4) if i < 4 else range(4, 8)
        assert all(links.hops(i, j) == (i != j) for j in group)
    hops = hop_matrix(links)
    assert (hops == hops.T).all()
    assert sorted(np.unique(hops).tolist()) == [0, 1, 2]
    assert int((hops == 2).sum()) == 24


def test_two_hops_cost_double() -> None:
    links = machine()
    assert links.bandwidth(0, 1) == links.brick
    assert links.bandwidth(0, 3) == 2 * links.brick
    assert links.bandwidth(1, 4) == links.brick / 2
    assert links.bandwidth(0, 7) == 2 * links.brick / 2


def test_pairs_by_a_switch_share_a_port() -> None:
    box = parse(switched(8, "NV18"))
    assert box.switched
    assert box.topology().time(np.full((8, 8), 450e9)) == pytest.approx(7, rel=1e-3)
    four = parse(switched(4, "NV4"))  # four bricks to each of three others, without a switch
    assert not four.switched
    assert four.topology().time(np.full((4, 4), 100e9)) == pytest.approx(1, rel=1e-3)
    assert best_ring(box) == tuple(range(8))


def test_other_machines() -> None:
    assert parse(PCIE).hops(0, 1) == -1
    assert parse(PCIE).topology().time([[0, 24e9], [0, 0]]) == pytest.approx(2, abs=1e-4)
    box = machine("nvswitch-v100", 16)
    assert set(hop_matrix(box).ravel().tolist()) == {0, 1}
    assert box.bandwidth(3, 9) == 150e9
    assert machine("pcie", 8).matrix[0] == ("X", "PIX", "PHB", "PHB", "SYS", "SYS", "SYS", "SYS")
    assert machine("nvswitch-h200", 2).bandwidth(0, 1) == pytest.approx(450e9)
    with pytest.raises(UnknownKeyError, match="dgx-9"):
        machine("dgx-9")
    with pytest.raises(InvalidInputError, match="8 devices"):
        machine(size=9)
    with pytest.raises(InvalidInputError, match="'size' is 0"):
        machine("pcie", 0)
    with pytest.raises(InvalidInputError, match="names no GPU"):
        parse("no devices found")


def test_a_switch_is_shared_without_p2p() -> None:
    """Two GPUs below a switch send at half the rate where bytes go through the host."""
    sent = np.zeros((4, 4))
    sent[0, 2] = sent[1, 3] = 12e9
    links = machine(size=4)
    assert links.topology(p2p=False).time(sent) == pytest.approx(2.0, abs=1e-4)
    sent[1, 3] = 0
    assert links.topology(p2p=False).time(sent) == pytest.approx(1.0, abs=1e-4)
    assert links.topology().time(sent) == pytest.approx(12 / 25, abs=1e-4)


def test_the_papers_ring_has_three_single_links() -> None:
    links = machine()
    even, odd = pairs(LITERAL)
    assert {frozenset(p) for p in even} == {frozenset(p) for p in ((0, 1), (2, 3), (4, 5), (6, 7))}
    assert {frozenset(p) for p in odd} == {frozenset(p) for p in ((0, 4), (1, 2), (3, 7), (5, 6))}
    found = quality(links, LITERAL)
    assert (found.not_direct, found.not_doubled) == (0, 3)
    assert doubled(links, LITERAL) == 5
    # Both phases have a single link, so that doubled ones gain nothing.
    assert found.seconds == 2 / links.brick


def test_exchanging_four_numbers_doubles_every_link() -> None:
    links = machine()
    assert sorted(i for i in range(8) if RELABELLED[i] != i) == [1, 3, 5, 7]
    named = links.relabelled(RELABELLED)
    assert doubled(named, LITERAL) == 8
    assert quality(named, LITERAL).seconds == 1 / links.brick
    best = best_ring(links)
    assert doubled(links, best) == 8
    assert quality(links, best) == quality(named, LITERAL)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.integers(2, 7))
def test_no_ring_is_better_than_the_best(seed, size) -> None:
    rng = np.random.default_rng(seed)
    entries = [["X"] * size for _ in range(size)]
    for i in range(size):
        for j in range(i):
            entries[i][j] = entries[j][i] = str(rng.choice(["NV1", "NV2", "SYS", "PIX"]))
    links = Links("random", tuple(map(tuple, entries)))
    rings = [(0, *rest) for rest in itertools.permutations(range(1, size))]
    assert quality(links, best_ring(links)) == min(quality(links, r) for r in rings)


def test_beyond_ten_devices_the_ring_is_searched_for() -> None:
    """A ring of doubled links is hidden among single ones."""
    rng = np.random.default_rng(3)
    size = 16
    hidden = [0, *(1 + rng.permutation(size - 1)).tolist()]
    entries = [["X" if i == j else "NV1" for j in range(size)] for i in range(size)]
    for k in range(size):
        a, b = hidden[k], hidden[(k + 1) % size]
        entries[a][b] = entries[b][a] = "NV2"
    links = Links("hidden", tuple(map(tuple, entries)))
    assert quality(links, best_ring(links)).not_doubled == 0
    assert best_ring(machine("pcie", 16)) == tuple(range(16))


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_every_machine_has_a_ring(name, size) -> None:
    links = machine(name, size)
    ring = best_ring(links)
    assert sorted(ring) == list(range(size))
    assert isinstance(quality(links, ring), RingQuality)
    assert links.topology().size == links.topology(p2p=False).size == size


def test_bad_arguments_are_named() -> None:
    with pytest.raises(InvalidInputError, match="3 devices"):
        pairs((0, 1, 2))
    with pytest.raises(InvalidInputError, match="'ring' is"):
        quality(machine(), (0, 1))
    with pytest.raises(InvalidInputError, match="'names' is"):
        machine().relabelled([0] * 8)
    with pytest.raises(InvalidInputError, match="'devices' is"):
        machine().chosen([1, 1])
