"""Twins as datasets: sizes, scaling, times, origin, parameters, and what users see go wrong."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.datasets import twins
from dgbench.datasets.twins import limits
from dgbench.datasets.twins.cliques import clique_stream, group_sizes
from dgbench.datasets.twins.fit import hub_share, solve_q
from dgbench.datasets.twins.params import ArrivalCurve, read_params
from dgbench.datasets.twins.params import params as row_of
from dgbench.datasets.twins.statistics import distinct_pairs
from dgbench.datasets.twins.times import stamps, window_counts
from dgbench.kernels_cuda.twins import RankCopySpec
from dgbench.runtime.errors import DataError, InvalidInputError, UnknownKeyError


@pytest.mark.parametrize("name", sorted(twins.names()))
def test_generated_sizes_times_and_origin(name):
    row = row_of(name)
    scale = max(min(1.0, 6e4 / row.events), 1 / 5000)
    events = round(row.events * scale)
    if events > 1.1e6:
        pytest.skip("the smallest allowed scale has over a million events")
    try:
        stream = twins.generate(name, scale)
    except InvalidInputError as error:  # a small side: the message says which scale would do
        scale = float(error.hint.rsplit(" ", 1)[1]) * 1.05
        stream = twins.generate(name, scale)
        events = round(row.events * scale)
    vertices = [round(n * scale**row.exponent) for n in row.vertices]
    assert len(stream) == events
    assert stream.num_nodes == sum(vertices)
    assert stream.num_src == (None if row.one_pool else vertices[0])
    t = stream.t.numpy()
    assert np.all(np.diff(t) >= 0)
    assert t[0] >= 0
    assert t[-1] < row.snapshots * row.window
    assert np.array_equal(np.floor(t / row.resolution) * row.resolution, t) or row.curve.permute
    used = set(stream.src.tolist()) | set(stream.dst.tolist())
    assert used == set(range(stream.num_nodes))
    assert (stream.origin.kind, stream.origin.dataset) == ("twin", name)
    assert (stream.origin.scale, stream.origin.seed) == (scale, 1)
    notes = " ".join(stream.origin.notes)
    assert all(word in notes for word in row.assumed)
    if row.simple:
        assert distinct_pairs(stream.src.numpy(), stream.dst.numpy()) >= 0.9 * events


@pytest.mark.parametrize("name", ["epinions", "hepth"])
def test_same_bytes_again_and_others_for_another_seed(name):
    a, b, c = (twins.generate(name, 0.02, seed, threads=n) for seed, n in ((1, 1), (1, 2), (2, 1)))
    assert a.src.equal(b.src)
    assert a.dst.equal(b.dst)
    assert a.t.equal(b.t)
    assert not a.src.equal(c.src)


def test_chunks_add_up_to_the_whole():
    whole = twins.generate("youtube", 0.005)
    parts = list(twins.stream("youtube", 0.005, chunk=1000))
    assert max(len(s) for s, _ in parts) == 1000
    assert np.array_equal(np.concatenate([s for s, _ in parts]), whole.src.numpy())
    assert np.array_equal(np.concatenate([d for _, d in parts]), whole.dst.numpy())
    with pytest.raises(InvalidInputError, match="chunks"):
        twins.stream("twitter", 0.001)


def test_sizes_that_cannot_be_are_refused_with_what_can():
    with pytest.raises(UnknownKeyError) as caught:
        twins.generate("flicker")
    assert "flickr" in caught.value.hint
    for scale in (0.0, 1 / 5001, 1.01, float("nan"), "all"):
        with pytest.raises(InvalidInputError, match="scale"):
            twins.generate("flickr", scale)
    with pytest.raises(InvalidInputError):
        twins.generate("twitter", 1.0)
    with pytest.raises(InvalidInputError) as caught:
        twins.generate("mooc", 0.01)
    least = float(caught.value.hint.rsplit(" ", 1)[1])
    assert twins.describe("mooc", least * 1.01)["sides"][1] >= 50


@settings(max_examples=30, deadline=None)
@given(st.floats(0.2, 4), st.floats(0.1, 1e4), st.floats(0.0005, 0.2))
def test_solved_q_hits_the_hub_share(s, q, share):
    spec = RankCopySpec(100_000, 4000, 900, mem_src=0.5, repeat=0.3, s_src=s, q_src=q)
    solved = solve_q(spec, 0, share)
    found = hub_share(replace(spec, q_src=solved), 0)
    at_ends = solved < 1.1e-3 or solved > 0.9e12
    assert at_ends or found == pytest.approx(share, rel=1e-6)


@settings(max_examples=50, deadline=None)
@given(
    st.integers(1, 5000), st.integers(1, 60), st.floats(0, 0.8), st.floats(0.2, 5), st.floats(0, 2)
)
def test_windows_share_out_every_event(events, count, start, power, cv):
    curve = ArrivalCurve(start=start, power=power, cv=cv)
    counts = window_counts(curve, events, count, 1)
    assert counts.sum() == events
    assert counts.min() >= 0
    assert counts[0] >= round(start * events)
    t = stamps(curve, events, count, 10.0, 0.5, 1)
    assert len(t) == events
    assert np.all(np.diff(t) >= 0)
    assert np.array_equal(np.bincount((t // 10).astype(int), minlength=count), counts)
    assert np.array_equal(t * 2, np.floor(t * 2))


def test_counts_follow_the_curve_and_its_variation():
    flat = window_counts(ArrivalCurve(), 1000, 10, 1)
    assert flat.tolist() == [100] * 10
    assert window_counts(ArrivalCurve(power=2), 100, 2, 1).tolist() == [25, 75]
    assert window_counts(ArrivalCurve(knots=(0, 0.5, 0.5, 1)), 90, 3, 1).tolist() == [45, 0, 45]
    assert window_counts(ArrivalCurve(steps=((0.5, 0.4),)), 100, 4, 1).tolist() == [15, 55, 15, 15]
    wild = window_counts(ArrivalCurve(cv=0.5), 10**6, 2000, 3)
    assert wild.std() / wild.mean() == pytest.approx(0.5, abs=0.06)


def test_cliques_join_all_members_at_one_time():
    """Every group of events is a complete graph over distinct authors."""
    spec = RankCopySpec(3000, 400, mem_src=0.5, reach_src=100, s_src=0.7, q_src=9)
    src, dst, group = clique_stream(spec, 5.0, 1)
    assert len(src) == 3000
    starts = np.unique(group)
    assert starts[0] == 0
    for first, last in pairwise(starts):
        members = set(src[first:last]) | set(dst[first:last])
        found = {frozenset(p) for p in zip(src[first:last], dst[first:last], strict=True)}
        assert len(found) == last - first == len(members) * (len(members) - 1) // 2
    t = stamps(ArrivalCurve(), 3000, 10, 10.0, 1.0, 1, groups=group)
    assert np.all(np.diff(t) >= 0)
    assert np.array_equal(t, t[group])
    assert group_sizes(100_000, 5.0, 1).mean() == pytest.approx(5.0, abs=0.05)
    with pytest.raises(InvalidInputError, match="mean"):
        clique_stream(spec, 1.5, 1)


GOOD = (
    "x: {like: itself, vertices: [60], events: 100, snapshots: 2, window: 1, s: [1, 1], q: [1, 1]}"
)


def test_rows_are_read_strictly():
    assert read_params(GOOD)["x"].one_pool
    for old, new, word in (
        ("s: [1, 1]", "s: [1, 1], speed: 3", "speed"), (", q: [1, 1]", "", "q"),
        ("vertices: [60]", "vertices: [60, 60, 60]", "vertices"),
        ("events: 100", "events: many", "events"), ("window: 1", "window: 0", "window"),
        ("window: 1", "window: 1, exponent: .7", "exponent"),
        ("window: 1", "window: 1, curve: {start: 1}", "start"),
        ("window: 1", "window: 1, curve: {knots: [0, .5, .4, 1]}", "knots"),
        ("window: 1", "window: 1, clique: 1", "clique"), ("{", "[", "twin parameters"),
    ):  # fmt: skip
        with pytest.raises(DataError, match=word):
            read_params(GOOD.replace(old, new))


def test_every_tag_has_a_reason_and_what_is_wrong_is_refused():
    assert all(limits.never(tag) for tag in limits.tags())
    with pytest.raises(UnknownKeyError) as caught:
        limits.never("acuracy")
    assert "accuracy" in caught.value.hint
    for text, word in (
        ("never: {}\nclaims: {p: [{match: [a], rule: never, tag: nothing}]}", "nothing"),
        ("never: {}\nclaims: {p: [{match: [a], rule: never}]}", "reason"),
        ("never: {}\nclaims: {p: [{match: [a], rule: maybe, reason: r}]}", "maybe"),
        ("never: {}\nclaims: {}\nmore: 1", "more"),
    ):
        with pytest.raises(DataError, match=word):
            limits.read_limits(text)
