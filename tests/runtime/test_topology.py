"""Named machines, the alpha-beta model, and its fit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dgbench.runtime import topology as machines
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError
from dgbench.runtime.topology import (
    MeasuredExchange,
    Topology,
    TopologyLink,
    dgx1_v100,
    esdg_cluster,
    fit,
    h200_node,
    parse_link_matrix,
    pcie_switch_pair,
    topology,
)  # fmt: skip

MADE = {name: topology(name) for name in machines.TOPOLOGIES}


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


def test_arguments() -> None:
    machine = h200_node(2)
    for wrong in (np.zeros((3, 3)), *([[0, bad], [0, 0]] for bad in (-1, math.nan, math.inf))):
        with pytest.raises(InvalidInputError):
            machine.time(wrong)
    with pytest.raises(InvalidInputError, match="compute_s"):
        machine.project([1, 2, 3], np.zeros((2, 2)))
    with pytest.raises(InvalidInputError, match="overlap"):
        machine.project([1], np.zeros((2, 2)), overlap=1.5)
    with pytest.raises(UnknownKeyError) as caught:
        topology("dgx1-v10")
    assert "dgx1-v100" in caught.value.hint
    link = TopologyLink("a", 0.0, 1.0)
    for wrong in (
        lambda: esdg_cluster(inside="rope"), lambda: dgx1_v100(unlinked="magic"),
        lambda: esdg_cluster(0), lambda: pcie_switch_pair(0), lambda: h200_node(0),
        lambda: TopologyLink("b", 0.0, 0.0), lambda: Topology("t", 2, [link], {(0, 1): (0,)}),
        lambda: Topology("t", 2, [link], {(0, 1): (0,), (1, 0): (1,)}),
        lambda: Topology("t", 1, [link, link], {}), lambda: parse_link_matrix(""),
        lambda: dgx1_v100(parse_link_matrix("GPU0 GPU1\nGPU0 X SYS\nGPU1 SYS X\n")),
        lambda: fit([MeasuredExchange(1, 1, 1)]),
        lambda: fit([MeasuredExchange(1, 1, 1), MeasuredExchange(2, 2, 2)]),
        lambda: fit([MeasuredExchange(1, 1, 1), MeasuredExchange(1, 2, 0)]),
    ):  # fmt: skip
        with pytest.raises((InvalidInputError, UnknownKeyError)):
            wrong()


TABLE = """
\x1b[4mGPU0 GPU1 GPU2 NIC0 CPU Affinity\x1b[0m
GPU0  X   NV2  SYS  PIX  0-19
GPU1 NV2   X   NV1  SYS  0-19
GPU2 SYS  NV1   X   SYS  20-39
NIC0 PIX  SYS  SYS   X
"""


def test_tables_that_are_broken() -> None:
    for old, new, message in (
        ("GPU2 SYS  NV1   X", "GPU3 SYS  NV1   X", "no row for GPU 2"),
        ("GPU1 NV2", "GPU1 NV1", "GPU 0 to 1 is NV2, 1 to 0 is NV1"),
        ("GPU0  X   NV2", "GPU0  X   WIRE", "row GPU0: WIRE"), ("GPU0 GPU1 GPU2", "", "GPU"),
    ):  # fmt: skip
        with pytest.raises(InvalidInputError, match=message):
            parse_link_matrix(TABLE.replace(old, new, 1))


@settings(deadline=None, max_examples=25)
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
