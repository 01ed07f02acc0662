"""Named machines, the alpha-beta model, and its fit."""

from __future__ import annotations

import math

import numpy as np
import pytest
import ranks_workers as workers
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dgbench.runtime.errors import InvalidInputError, UnknownKeyError
from dgbench.runtime.topology import (
    TOPOLOGIES,
    MeasuredExchange,
    Topology,
    TopologyLink,
    dgx1_v100,
    esdg_cluster,
    fit,
    h200_node,
    measure_exchange,
    parse_link_matrix,
    pcie_switch_pair,
    topology,
)
from dgbench.runtime.topology.matrix import read_link_matrix
from dgbench.runtime.topology.named import DGX1_FILE


@pytest.fixture(autouse=True)
def no_copy_thread_is_left() -> None:
    """No test here opens a link, so the costly look for its threads is left out."""


MADE = {name: topology(name) for name in TOPOLOGIES}


def slow_time(machine: Topology, traffic: np.ndarray, messages: np.ndarray) -> float:
    """The busiest link, message by message."""
    busy = [0.0] * len(machine.links)
    for (src, dst), route in machine.routes.items():
        for i in route:
            link = machine.links[i]
            busy[i] += messages[src, dst] * link.alpha_s + traffic[src, dst] / link.bandwidth
    return max(busy, default=0.0)


@settings(deadline=None, max_examples=30)
@given(
    name=st.sampled_from(["dgx1-v100", "dgx1-v100-host", "pcie-switch-pair", "h200-node"]),
    seed=st.integers(0, 1000),
)
def test_time_is_that_of_the_busiest_link(name: str, seed: int) -> None:
    machine, random = MADE[name], np.random.default_rng(seed)
    shape = (machine.size, machine.size)
    traffic = random.integers(0, 10**7, shape) * random.integers(0, 2, shape)
    messages = random.integers(0, 5, shape)
    assert math.isclose(
        machine.time(traffic, messages), slow_time(machine, traffic, messages), rel_tol=1e-12
    )
    once = (traffic > 0).astype(int)
    assert math.isclose(machine.time(traffic), slow_time(machine, traffic, once), rel_tol=1e-12)


@pytest.mark.parametrize("name", sorted(TOPOLOGIES))
def test_every_machine(name: str) -> None:
    machine = MADE[name]
    assert machine.assumed
    idle = np.zeros((machine.size, machine.size))
    assert machine.time(idle) == 0
    home = np.eye(machine.size) * 1e9
    assert machine.time(home) == 0, "what stays at home costs nothing"
    one = idle.copy()
    one[0, 1] = 1e6
    assert 0 < machine.time(one) < machine.time(2 * one) < machine.time(one + np.roll(one, 1)) * 3
    full = np.full_like(idle, 1e6)
    assert machine.time(full) >= machine.time(one)


def test_links_of_the_cube_mesh() -> None:
    """Six bricks a GPU; the doubled and single pairs as published."""
    matrix = read_link_matrix(DGX1_FILE)
    found = {n: set() for n in ("NV1", "NV2")}
    for i in range(8):
        for j in range(i + 1, 8):
            if matrix[i][j] in found:
                found[matrix[i][j]].add((i, j))
    assert found["NV2"] == {(0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7)}
    assert found["NV1"] == {(0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7)}


def test_routes_of_the_cube_mesh() -> None:
    machine = dgx1_v100()
    names = {pair: [machine.links[i].name for i in r] for pair, r in machine.routes.items()}
    assert names[0, 3] == ["gpu0 > gpu3"]
    assert names[0, 7] == ["gpu0 > gpu4", "gpu4 > gpu7"], "two doubled links beat single ones"
    assert all(len(route) <= 2 for route in names.values())
    host = dgx1_v100(unlinked="host")
    assert [host.links[i].name for i in host.routes[0, 7]] == [
        "gpu0 pcie out",
        "switch0 out",
        "socket0 out",
        "socket1 in",
        "switch3 in",
        "gpu7 pcie in",
    ]
    one = np.zeros((8, 8))
    one[0, 3] = 50e9
    assert dgx1_v100(alpha_s=0).time(one) == 1.0


def test_two_switches_share_their_ports() -> None:
    machine = pcie_switch_pair(2, pcie=10.0, alpha_s=0)
    below, across = np.zeros((4, 4)), np.zeros((4, 4))
    below[0, 1] = below[2, 3] = 100
    across[0, 2] = across[1, 3] = 100
    assert machine.time(below) == 10
    assert machine.time(across) == 20


def test_nodes_share_their_network() -> None:
    """All eight GPUs of a node send through two adapters: the dip from 8 to 16 ranks."""
    machine = esdg_cluster(2, alpha_s=0, alpha_net_s=0)
    across = np.zeros((16, 16))
    across[:8, 8:] = 25e9 / 64
    assert math.isclose(machine.time(across), 1.0)
    inside = np.zeros((16, 16))
    inside[:8, :8] = 25e9 / 64
    assert machine.time(inside) < 0.1
    assert "not printed" in machine.assumed


def test_switch_is_limited_by_ports() -> None:
    machine = h200_node(4, bandwidth=100.0, alpha_s=0.5)
    traffic = np.full((4, 4), 10.0)
    assert math.isclose(machine.time(traffic), 3 * 0.5 + 30 / 100)


def test_first_devices() -> None:
    machine = h200_node(8)
    two = machine.first(2)
    assert two.size == 2
    assert two.time([[0, 1e9], [0, 0]]) == machine.time(np.pad([[0, 1e9], [0, 0]], (0, 6)))
    assert machine.first(8) is machine
    assert machine.first(1).time([[5.0]]) == 0
    with pytest.raises(InvalidInputError, match="'size' is 9"):
        machine.first(9)


def test_projection_is_labelled() -> None:
    machine = h200_node(2, bandwidth=100.0, alpha_s=0)
    traffic = [[0, 50], [10, 0]]
    found = machine.project([1.0, 2.0], traffic, error=0.125)
    assert (found.seconds, found.compute_s, found.communicate_s) == (2.5, 2.0, 0.5)
    assert (found.evidence, found.topology, found.error) == ("projected", "h200-node", 0.125)
    assert found.busiest == "gpu0 out"
    assert "projected on h200-node, model error 12%" in str(found)
    assert "no measured points" in str(machine.project([1.0], traffic))
    assert machine.project([2.0], traffic, overlap=1.0).seconds == 2.0
    assert machine.project([0.2], traffic, overlap=1.0).seconds == pytest.approx(0.5)
    assert machine.project([1.0], np.zeros((2, 2))).busiest == ""


def test_arguments() -> None:
    machine = h200_node(2)
    with pytest.raises(InvalidInputError, match=r"shape \(3, 3\), 'h200-node' has 2 devices"):
        machine.time(np.zeros((3, 3)))
    for bad in (-1, math.nan, math.inf):
        with pytest.raises(InvalidInputError, match="negative or not finite"):
            machine.time([[0, bad], [0, 0]])
    with pytest.raises(InvalidInputError, match="'compute_s'"):
        machine.project([1, 2, 3], np.zeros((2, 2)))
    with pytest.raises(InvalidInputError, match=r"'overlap' is 1\.5"):
        machine.project([1], np.zeros((2, 2)), overlap=1.5)
    with pytest.raises(UnknownKeyError, match="topology 'dgx1-v10'") as caught:
        topology("dgx1-v10")
    assert "dgx1-v100" in caught.value.hint
    with pytest.raises(UnknownKeyError, match="inside 'rope'"):
        esdg_cluster(inside="rope")
    with pytest.raises(UnknownKeyError, match="unlinked 'magic'"):
        dgx1_v100(unlinked="magic")
    with pytest.raises(InvalidInputError, match="'nodes' is 0"):
        esdg_cluster(0)
    with pytest.raises(InvalidInputError, match="'per_switch' is 0"):
        pcie_switch_pair(0)
    with pytest.raises(InvalidInputError, match="needed: at least 1"):
        h200_node(0)


def test_topologies_that_cannot_be() -> None:
    link = TopologyLink("a", 0.0, 1.0)
    with pytest.raises(InvalidInputError, match="bandwidth > 0"):
        TopologyLink("b", 0.0, 0.0)
    with pytest.raises(InvalidInputError, match=r"the pair \(1, 0\) has no route"):
        Topology("t", 2, [link], {(0, 1): (0,)})
    with pytest.raises(InvalidInputError, match=r"the route of \(1, 0\) is \(1,\)"):
        Topology("t", 2, [link], {(0, 1): (0,), (1, 0): (1,)})
    with pytest.raises(InvalidInputError, match="one name"):
        Topology("t", 1, [link, link], {})


TABLE = """
\x1b[4mGPU0 GPU1 GPU2 NIC0 CPU Affinity\x1b[0m
GPU0  X   NV2  SYS  PIX  0-19
GPU1 NV2   X   NV1  SYS  0-19
GPU2 SYS  NV1   X   SYS  20-39
NIC0 PIX  SYS  SYS   X
"""


def test_a_table_as_it_is_printed() -> None:
    matrix = parse_link_matrix(TABLE)
    assert matrix == (("X", "NV2", "SYS"), ("NV2", "X", "NV1"), ("SYS", "NV1", "X"))
    machine = dgx1_v100(matrix)
    assert [machine.links[i].name for i in machine.routes[0, 2]] == ["gpu0 > gpu1", "gpu1 > gpu2"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("GPU2 SYS  NV1   X", "GPU3 SYS  NV1   X", "no row for GPU 2"),
        ("GPU1 NV2", "GPU1 NV1", "GPU 0 to 1 is NV2, 1 to 0 is NV1"),
        ("GPU0  X   NV2", "GPU0  X   WIRE", "row GPU0: WIRE"),
        ("GPU0 GPU1 GPU2", "", "GPU"),
    ],
)
def test_tables_that_are_broken(old: str, new: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        parse_link_matrix(TABLE.replace(old, new, 1))


def test_no_table(tmp_path) -> None:
    with pytest.raises(InvalidInputError, match="names no GPU"):
        parse_link_matrix("")
    with pytest.raises(InvalidInputError, match="cannot be read"):
        read_link_matrix(tmp_path / "nothing.txt")
    lonely = "GPU0 GPU1\nGPU0 X SYS\nGPU1 SYS X\n"
    with pytest.raises(InvalidInputError, match="no NVLink neighbour in common"):
        dgx1_v100(parse_link_matrix(lonely))


@settings(deadline=None)
@given(
    alpha=st.floats(1e-7, 1e-3),
    beta=st.floats(1e-12, 1e-8),
    points=st.lists(
        st.tuples(st.integers(1, 100), st.integers(1, 10**8)), min_size=3, max_size=8, unique=True
    ),
)
def test_fit_finds_what_made_the_points(
    alpha: float, beta: float, points: list[tuple[int, int]]
) -> None:
    # Points where one of the terms is lost beside the other cannot tell it.
    shares = [m * alpha / (m * alpha + b * beta) for m, b in points]
    assume(max(shares) - min(shares) > 0.2)
    found = fit([MeasuredExchange(m, b, m * alpha + b * beta) for m, b in points])
    assert math.isclose(found.alpha_s, alpha, rel_tol=1e-6)
    assert math.isclose(found.bandwidth, 1 / beta, rel_tol=1e-6)
    assert found.typical < 1e-9
    for m, b in points:
        assert math.isclose(found.time(m, b), m * alpha + b * beta, rel_tol=1e-6)


def test_fit_says_how_far_off_it_is() -> None:
    points = [MeasuredExchange(1, 10.0**k, 1e-5 + 10.0**k * 1e-9) for k in range(1, 9)]
    good = fit(points)
    bad = fit([*points, MeasuredExchange(1, 1e5, 3 * (1e-5 + 1e-4))])
    assert good.error < 1e-6
    assert bad.error > 0.3
    assert bad.typical < bad.error
    assert bad.points == 9


def test_fit_never_goes_below_zero() -> None:
    falling = [
        MeasuredExchange(1, 1e3, 1e-3),
        MeasuredExchange(1, 1e6, 0.9e-3),
        MeasuredExchange(1, 1e7, 0.8e-3),
    ]
    found = fit(falling)
    assert found.alpha_s > 0
    assert found.bandwidth == math.inf


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([MeasuredExchange(1, 1, 1)], "has 1 points"),
        ([MeasuredExchange(1, 1, 1), MeasuredExchange(2, 2, 2)], "one number of bytes per message"),
        ([MeasuredExchange(1, 1, 1), MeasuredExchange(1, 2, 0)], "last no time"),
        ([MeasuredExchange(1, 1, 1), MeasuredExchange(1, -2, 1)], "negative"),
    ],
)
def test_points_that_do_not_do(points: list[MeasuredExchange], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        fit(points)


def test_measured_exchanges_can_be_fitted() -> None:
    """From ranks to a topology; the numbers are the machine's and are not judged here."""
    from dgbench.runtime.collectives import LocalCommunicator
    from dgbench.runtime.ranks import launch

    found = launch(workers.measure, 2, ([64, 2**16, 2**20],), timeout_s=240, threads=1)
    assert found[0] == found[1]
    assert [(p.messages, p.nbytes) for p in found[0]] == [(2, 128), (2, 2**17), (2, 2**21)]
    link = fit(found[0])
    assert link.alpha_s >= 0
    assert link.bandwidth > 0
    with pytest.raises(InvalidInputError, match="1 ranks"):
        measure_exchange(LocalCommunicator(), [1])
