"""The analyzer, what it keeps, and the form in which partitions travel."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_data import TinySequence, csr_of, tiny_sequence

from dgbench.datasets.transforms import factors
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.overlap import PartTopology
from dgbench.kernels_cuda.slices import csr_words, slice_csr
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError
from dgbench.systems.pipad import analyzer as analyzer_module
from dgbench.systems.pipad.analyzer import Analysis, Analyzer
from dgbench.systems.pipad.partitions import Partitions
from dgbench.systems.pipad.wire import pack, scales_of, unpack

CAPS = (8, 16, 32, 64)


@st.composite
def sequences(draw: st.DrawFn, least: int = 1) -> TinySequence:
    """Snapshots with dense rows (more than one slice), empty rows, and empty snapshots."""
    nodes = draw(st.sampled_from([1, 2, 9, 90]))
    steps = draw(st.integers(least, 10))
    weighted = draw(st.booleans())
    change = draw(st.sampled_from([0.0, 0.05, 1.0]))
    generator = np.random.default_rng(draw(st.integers(0, 2**16)))
    busy = generator.random(nodes) < 0.1  # vertices with many neighbours
    chance = np.where(busy, 0.9, draw(st.sampled_from([0.0, 0.03])))[:, None]
    present = generator.random((nodes, nodes)) < chance
    topology: list[Csr] = []
    for _ in range(steps):
        if topology and generator.random() < 0.15:
            topology.append(topology[-1])
            continue
        fresh = generator.random((nodes, nodes)) < chance
        present = np.where(generator.random((nodes, nodes)) < change, fresh, present)
        pairs = [] if generator.random() < 0.1 else list(zip(*np.nonzero(present), strict=True))
        table = generator.random((nodes, nodes)) + 0.1
        weights = {(s, d): float(table[s, d]) for s, d in pairs} if weighted else None
        topology.append(csr_of([(int(s), int(d)) for s, d in pairs], nodes, weights))
    zeros = torch.zeros(steps, nodes, 2)
    return TinySequence(topology, zeros, zeros[:, :, 0], nodes)


settings_of = st.fixed_dictionaries(
    {
        "sliced": st.booleans(),
        "overlap": st.booleans(),
        "granularity": st.sampled_from(["edge", "slice"]),
        "cap": st.sampled_from(CAPS),
    }
)


def edges(csr: Csr) -> dict[tuple[int, int], float]:
    rows = np.repeat(np.arange(csr.num_rows), csr.indptr.diff().numpy()).tolist()
    values = [1.0] * csr.nnz if csr.values is None else csr.values.tolist()
    return dict(zip(zip(rows, csr.indices.tolist(), strict=True), values, strict=True))


def of_snapshot(parts: PartTopology, i: int) -> tuple[dict, dict]:
    """Overlap and exclusive entries of snapshot i with its weights."""
    over = parts.over
    if over.values is not None:
        over = Csr(over.indptr, over.indices, over.num_cols, over.values[:, i].contiguous())
    return edges(over), edges(parts.exclusive[i])


def assert_same(one: PartTopology | Csr, other: PartTopology | Csr) -> None:
    if isinstance(one, PartTopology):
        assert isinstance(other, PartTopology)
        pairs = zip((one.over, *one.exclusive), (other.over, *other.exclusive), strict=True)
    else:
        pairs = [(one, other)]
    for a, b in pairs:
        assert torch.equal(a.indptr, b.indptr)
        assert a.indptr.dtype == b.indptr.dtype == torch.int64
        assert torch.equal(a.indices, b.indices)
        assert a.num_cols == b.num_cols
        assert (a.values is None) == (b.values is None)
        if a.values is not None:
            assert a.values.shape == b.values.shape
            assert torch.equal(a.values, b.values)


def whole_words(csr: Csr, sliced: bool, cap: int) -> int:
    weighted = csr.values is not None
    return slice_csr(csr, cap).words(weighted) if sliced else csr_words(csr, weighted)


def analyse(partitions: Partitions, **arguments) -> Analysis:
    arguments = {"frame": 32, "options": (1, 2, 4, 8), "background": False} | arguments
    analyzer = Analyzer(partitions, **arguments)
    analyzer.start()
    return analyzer.wait()


@given(data=sequences(), choice=settings_of, analysed=st.booleans())
def test_parts_are_disjoint_complete_and_worth_their_words(data, choice, analysed):
    partitions = Partitions(data, norm="sym", **choice)
    if analysed:
        analyse(partitions, options=(2, 4))
    for size in (1, 2, 3, 4, 8):
        for start in range(len(data) - size + 1):
            times = range(start, start + size)
            part = partitions.partition(times)
            for i, t in enumerate(times):
                over, rest = of_snapshot(part.parts, i)
                assert not over.keys() & rest.keys()
                assert over | rest == edges(data.topology[t])
                row, col = factors(data.topology[t], "sym")
                assert torch.equal(part.row_scale[:, i], row)
                assert torch.equal(part.col_scale[:, i], col)
            wires = partitions.wires(times)
            assert len(wires) == (1 if choice["overlap"] else size)
            assert part.words == partitions.words(times) == sum(wire.words for wire in wires)


@given(data=sequences(), choice=settings_of)
def test_facts_are_those_of_the_groups(data, choice):
    found = analyse(Partitions(data, norm="sym", **choice))
    sliced, cap = choice["sliced"], choice["cap"]
    sizes = [size for size in (1, 2, 4, 8) if size <= len(data)]
    assert found.s_options == tuple(sizes)
    assert len(found.groups) == sum(len(data) - size + 1 for size in sizes)
    weighted = data.topology[0].values is not None
    for times, facts in found.groups.items():
        group = data.topology[times.start : times.stop]
        parts = PartTopology.build(group, choice["granularity"], cap)
        whole = sum(whole_words(csr, sliced, cap) for csr in group)
        assert facts.whole_words == whole
        moved = parts.words(sliced, weighted, cap) if choice["overlap"] else whole
        assert facts.words == moved
        assert facts.overlap_rate == pytest.approx(parts.overlap_rate())
        assert facts.jaccard == pytest.approx(parts.jaccard())
    assert len(found.change_rates) == len(data) - 1
    for t, rate in enumerate(found.change_rates):
        one, other = (edges(data.topology[t + i]).keys() for i in (0, 1))
        union = len(one | other)
        assert rate == pytest.approx(1 - len(one & other) / union if union else 0.0)


@given(
    data=sequences(),
    size=st.integers(1, 10),
    sliced=st.booleans(),
    granularity=st.sampled_from(["edge", "slice"]),
    cap=st.sampled_from((1, *CAPS)),
)
def test_what_is_packed_comes_out(data, size, sliced, granularity, cap):
    parts = PartTopology.build(data.topology[:size], granularity, cap)
    weighted = parts.over.values is not None
    wire = pack(parts, sliced=sliced, cap=cap)
    assert [t.dtype for t in wire.tensors] == [torch.int32, torch.float32][: 1 + weighted]
    assert wire.words == sum(t.numel() for t in wire.tensors)
    assert wire.words == parts.words(sliced, weighted, cap)
    assert wire.nbytes == 4 * wire.words == sum(t.nbytes for t in wire.tensors)
    sent = [t.clone() for t in wire.tensors]
    assert_same(unpack(wire.layout, sent), parts)
    for csr in data.topology[:2]:
        wire = pack(csr, sliced=sliced, cap=cap)
        assert wire.words == whole_words(csr, sliced, cap)
        assert_same(unpack(wire.layout, wire.tensors), csr)


def test_tensors_that_do_not_fit_the_layout_are_refused():
    wire = pack(PartTopology.build([csr_of([(1, 0)], 3, {(1, 0): 2.0})] * 2))
    ints, floats = wire.tensors
    for bad in ((ints,), (ints[1:], floats), (ints, floats.double())):
        with pytest.raises(InvalidInputError, match="tensors"):
            unpack(wire.layout, bad)
    with pytest.raises(InvalidInputError, match="norm"):
        scales_of(unpack(wire.layout, wire.tensors), "max")
    broken = ints.clone()
    broken[0] = 3  # the row of a slice, of three rows
    with pytest.raises(ValueError, match="slices"):
        unpack(wire.layout, (broken, floats))


def analyzer_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name == "pipad-analyzer"]


@pytest.mark.parametrize(
    ("form", "weighted", "overlap"), [("parts", True, True), ("wire", False, True),
                                      ("wire", True, False)]
)  # fmt: skip
def test_background_finds_and_keeps_what_the_foreground_does(form, weighted, overlap):
    data = tiny_sequence(snapshots=11, weighted=weighted)
    found, kept = [], []
    for background in (True, False):
        partitions = Partitions(data, norm="sym", overlap=overlap)
        found.append(analyse(partitions, background=background, form=form, frame=4))
        kept.append(partitions)
    assert found[0].groups == found[1].groups
    assert found[0].s_options == (1, 2, 4)  # 8 is longer than the frame
    assert found[0].change_rates == found[1].change_rates
    assert found[0].kept_bytes == found[1].kept_bytes > 0
    assert found[0].seconds > 0
    for times in found[0].groups:
        one, other = (partitions.wires(times) for partitions in kept)
        for a, b in zip(one, other, strict=True):
            assert all(torch.equal(x, y) for x, y in zip(a.tensors, b.tensors, strict=True))
    assert not analyzer_threads()


def test_what_is_kept_is_not_made_again_and_the_rest_is_made_on_demand(monkeypatch):
    data = tiny_sequence(snapshots=11)
    full = Partitions(data, norm="sym")
    everything = analyse(full).kept_bytes
    for keep_bytes in (0, everything // 3, everything):
        partitions = Partitions(data, norm="sym")
        found = analyse(partitions, keep_bytes=keep_bytes)
        assert found.kept_bytes <= keep_bytes
        for times in found.groups:
            assert_same(partitions.partition(times).parts, full.partition(times).parts)
    assert found.kept_bytes == everything
    for name in ("split_unchecked", "trust_parts"):
        monkeypatch.setattr(f"dgbench.systems.pipad.partitions.{name}", None)
    assert_same(partitions._parts_on_device(range(2, 6)), full.partition(range(2, 6)).parts)


def test_closing_midway_leaves_no_thread(monkeypatch):
    reached, go_on = threading.Event(), threading.Event()
    real = analyzer_module.trace_unchecked

    def slow(*arguments, **keywords):
        reached.set()
        assert go_on.wait(10)
        return real(*arguments, **keywords)

    monkeypatch.setattr(analyzer_module, "trace_unchecked", slow)
    analyzer = Analyzer(Partitions(tiny_sequence(), norm="sym"), frame=4)
    analyzer.start()
    assert reached.wait(10)
    assert not analyzer.done
    assert analyzer_threads()
    analyzer._stop.set()
    go_on.set()
    analyzer.close()
    analyzer.close()
    assert not analyzer_threads()
    assert not analyzer.done
    for call in (
        analyzer.wait,
        analyzer.start,
        Analyzer(Partitions(tiny_sequence(), norm="sym"), frame=4).wait,
    ):
        with pytest.raises(InvalidInputError):
            call()


@pytest.mark.parametrize("background", [False, True])
def test_what_goes_wrong_surfaces_at_wait(background):
    data = tiny_sequence()
    bad = data.topology[2]
    data.topology[2] = Csr(bad.indptr, bad.indices.flip(0), bad.num_cols)
    analyzer = Analyzer(Partitions(data, norm="sym"), frame=4, background=background)
    analyzer.start()
    for _ in range(2):
        with pytest.raises(InvalidInputError, match="snapshot 2"):
            analyzer.wait()
    assert analyzer.done
    assert not analyzer_threads()


def test_refusals_say_what_is_allowed():
    data = tiny_sequence()
    partitions = Partitions(data, norm="sym")
    for bad in ({"frame": 0}, {"options": (2, 33)}, {"keep_bytes": -1}):
        with pytest.raises(InvalidInputError, match=next(iter(bad))):
            Analyzer(partitions, **{"frame": 4, **bad})
    with pytest.raises(InvalidInputError, match="cap"):
        Partitions(data, norm="sym", cap=0)
    with pytest.raises(UnknownKeyError, match="granularity"):
        Partitions(data, norm="sym", granularity="edges")
