"""Memory by count: rows and edges as they are in the code, and what fits where."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from dgbench.models.streaming import Dygnn
from dgbench.models.streaming.jodie import Jodie
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError
from dgbench.systems.tgcn.plan import (
    ACTIVATIONS,
    Cut,
    MemoryPlan,
    ModelSize,
    baseline_memory,
    fewest,
    parameter_bytes,
    state_bytes,
    streamed_bytes,
    table,
    tgcn_memory,
    touched,
    trained,
)

TWITTER = ModelSize(41_652_230, 1_468_365_182, features=1)
V100 = 32 * 2**30


@pytest.mark.parametrize("hidden", [8, 64])
def test_a_vertex_takes_what_its_state_takes(hidden) -> None:
    size = ModelSize(10, 10, hidden)
    for name, model in (
        ("tgcn", Dygnn(hidden)),
        ("dygnn", Dygnn(hidden, propagation=True)),
        ("jodie", Jodie(hidden)),
    ):
        state, waits = model.new_state(10)
        assert (state.nbytes + waits.nbytes) / 10 == state_bytes(size, name), name
    assert state_bytes(size, "paper") == 5 * 4 * hidden + 16
    weights = sum(p.numel() * p.element_size() for p in Dygnn(hidden).parameters())
    assert parameter_bytes(size) == 4 * weights


def test_activations_are_bounded_by_what_a_refresh_keeps() -> None:
    model, rows = Dygnn(64), 500
    state, waits = model.new_state(rows)
    waits.count_s += 1
    waits.count_g += 1
    kept: dict[int, int] = {}

    def note(x: torch.Tensor) -> torch.Tensor:
        kept[x.untyped_storage().data_ptr()] = x.numel() * x.element_size()
        return x

    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        new = model.refresh(state, waits)
    del new
    vectors = sum(kept.values()) / rows / (4 * 64)
    assert vectors <= ACTIVATIONS
    assert vectors >= ACTIVATIONS / 2


def test_both_baselines_run_out_of_memory_on_twitter() -> None:
    """Even the smallest state that counts, and even without any edge."""
    for system in ("paper", "dygnn", "jodie"):
        found = baseline_memory(TWITTER, system)
        assert not found.fits(V100)
        assert found.device["state"] > V100
        assert found.device["edges"] > V100
    assert baseline_memory(TWITTER, "paper").device["state"] == 41_652_230 * 1296
    assert baseline_memory(ModelSize(2_302_925, 33_140_017), "dygnn").fits(V100)
    padded = baseline_memory(TWITTER, "dygnn", padding=1.5)
    assert padded.device["padding"] == TWITTER.edges * 8


def test_one_device_must_stream_twitter_and_eight_need_not() -> None:
    many = Cut(intervals=1000)
    assert tgcn_memory(TWITTER, many).device["R1 state"] > V100
    parts = fewest(TWITTER, many, V100, "parts")
    assert parts is not None
    assert parts > 1
    streamed = tgcn_memory(TWITTER, Cut(intervals=1000, parts=parts))
    assert streamed.fits(V100, host=256 * 10**9)
    assert not tgcn_memory(TWITTER, Cut(intervals=1000, parts=parts - 1)).fits(V100)
    assert tgcn_memory(TWITTER, Cut(intervals=1000, devices=8)).fits(V100)
    assert fewest(TWITTER, many, V100, "devices") <= 8
    assert fewest(TWITTER, Cut(), V100, "intervals") is None
    assert fewest(ModelSize(100, 100), Cut(), V100, "devices") == 1
    with pytest.raises(UnknownKeyError):
        fewest(TWITTER, many, V100, "vertices")


def test_more_of_anything_makes_regions_smaller() -> None:
    size = ModelSize(10_000, 300_000)
    for what in ("devices", "parts", "intervals"):
        found = [tgcn_memory(size, Cut(**{what: n})).device for n in (1, 2, 5, 20)]
        for one, more in pairwise(found):
            assert more["R1 activations"] <= one["R1 activations"]
            assert more["R2 pairs"] <= one["R2 pairs"]
    assert "R3 state" in tgcn_memory(size, Cut(parts=2)).device
    assert tgcn_memory(size, Cut()).device["R2 visiting"] == 0


def test_counts() -> None:
    size, cut = ModelSize(1000, 10_000), Cut(intervals=4, share=0.5)
    assert trained(size, cut) == 4000
    assert touched(size, cut) == 1000
    assert touched(size, Cut(intervals=4000)) == 3
    assert streamed_bytes(size, cut) == {"h2d": 4000 * 2 * 8, "d2h": 0}
    more = streamed_bytes(size, Cut(intervals=4, parts=2))
    assert more["d2h"] == 4 * 1000 * (state_bytes(size) + 2 * 2 * 256)
    assert more["h2d"] > more["d2h"]
    words = table({"dygnn": baseline_memory(TWITTER, "dygnn")}, V100)
    assert "OOM at 32 GiB" in words
    assert MemoryPlan({"a": 3}, {"b": 4}).fits(3, 4)
    assert not MemoryPlan({"a": 3}, {"b": 4}).fits(3, 3)


def test_bad_arguments_are_named() -> None:
    with pytest.raises(InvalidInputError, match="negative size"):
        ModelSize(-1, 1)
    with pytest.raises(InvalidInputError, match="counts must be"):
        Cut(intervals=0)
    with pytest.raises(InvalidInputError, match="goes through parts"):
        Cut(devices=2, parts=2)
    with pytest.raises(InvalidInputError, match="'padding'"):
        baseline_memory(TWITTER, "jodie", padding=0.5)
    with pytest.raises(UnknownKeyError):
        state_bytes(TWITTER, "tgn")
