"""The analyzer, what it keeps, and the form in which partitions travel."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_data import TinySequence, entries_of, serve, tiny_sequence, tiny_workload

from dgbench.datasets.transforms import factors
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.overlap import PartTopology
from dgbench.kernels_cuda.slices import csr_words, slice_csr
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError
from dgbench.systems.pipad import PipadSystem
from dgbench.systems.pipad.analyzer import Analysis, Analyzer
from dgbench.systems.pipad.kept import KeptGroups, Schedule
from dgbench.systems.pipad.ladders import PUBLISHED, stage
from dgbench.systems.pipad.partitions import Partitions


@st.composite
def sequences(draw: st.DrawFn) -> TinySequence:
    """Snapshots with dense rows (more than one slice), empty rows, and empty snapshots."""
    return tiny_sequence(
        draw(st.sampled_from([1, 2, 9, 90])), draw(st.integers(1, 8)),
        draw(st.sampled_from([0, 9, 90, 2000])), 2, weighted=draw(st.booleans()),
        kept=draw(st.sampled_from([0.0, 0.95, 1.0])), seed=draw(st.integers(0, 2**16)),
    )  # fmt: skip


settings_of = st.fixed_dictionaries(
    {"sliced": st.booleans(), "overlap": st.booleans(),
     "granularity": st.sampled_from(["edge", "slice"]), "cap": st.sampled_from([8, 16, 32, 64])}
)  # fmt: skip


def edges(csr: Csr) -> dict[tuple[int, int], float]:
    values = [1.0] * csr.nnz if csr.values is None else csr.values.tolist()
    return dict(zip(entries_of(csr), values, strict=True))


def of_snapshot(parts: PartTopology, i: int) -> tuple[dict, dict]:
    """Overlap and exclusive entries of snapshot i with its weights."""
    over = parts.over
    if over.values is not None:
        over = Csr(over.indptr, over.indices, over.num_cols, over.values[:, i].contiguous())
    return edges(over), edges(parts.exclusive[i])


def whole_words(csr: Csr, sliced: bool, cap: int) -> int:
    weighted = csr.values is not None
    return slice_csr(csr, cap).words(weighted) if sliced else csr_words(csr, weighted)


def analyse(partitions: Partitions, **arguments) -> Analysis:
    arguments = {"frame": 32, "options": (1, 2, 4, 8), "background": False} | arguments
    analyzer = Analyzer(partitions, **arguments)
    analyzer.start()
    return analyzer.wait()


@settings(max_examples=40)
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


@settings(max_examples=40)
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


def analyzer_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name == "pipad-analyzer"]


def test_closing_midway_leaves_no_thread():
    partitions = Partitions(tiny_sequence(snapshots=60), norm="sym")
    analyzer, other = (Analyzer(partitions, frame=4) for _ in range(2))
    analyzer.start()
    for _ in range(2):
        analyzer.close()
    assert not analyzer_threads()
    for call in (analyzer.start, other.wait):
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


# --- what is kept of groups -----------------------------------------------------------------------

SIZE = 10


def walk(kept: KeptGroups, order: list[int], schedule: Schedule | None) -> int:
    """Things that are made when these groups are needed one after another."""
    made = 0
    for now, group in enumerate(order):
        if schedule is not None:
            schedule.now = now
        if kept.get((group,), "thing") is None:
            made += 1
            kept.put((group,), "thing", group, SIZE)
        assert kept.nbytes <= kept._limit()
    return made


def fewest(order: list[int], room: int) -> int:
    """Belady's rule written out: what is needed last goes, or is not let in."""
    held: set[int] = set()
    made = 0
    for now, group in enumerate(order):
        if group in held:
            continue
        made += 1
        after = {one: order.index(one, now + 1) if one in order[now + 1 :] else 10**6
                 for one in held | {group}}  # fmt: skip
        held.add(group)
        if len(held) > room:
            held.remove(max(after, key=lambda one: (after[one], one)))
    return made


@given(order=st.lists(st.integers(0, 7), min_size=1, max_size=40), room=st.integers(0, 8))
def test_no_rule_makes_fewer_things(order, room):
    uses = {(group,): [i for i, one in enumerate(order) if one == group] for group in order}

    class Once(Schedule):
        def wait(self, identity):
            later = [i for i in uses[identity] if i > self.now]
            return later[0] - self.now if later else float("inf")

    kept = KeptGroups(lambda: room * SIZE)
    kept.schedule = Once(uses, len(order))
    rebuilt = []
    kept.on_rebuilt = lambda: rebuilt.append(1)
    made = walk(kept, order, kept.schedule)
    assert made == fewest(order, room)
    assert len(rebuilt) == made - len(set(order))


LONG = 40
"""Snapshots: more than those of the last groups, which stay whatever the budget is."""

SETTINGS = [
    ({"compiled_step": False}, True), ({"arena": True}, False),
    ({"arena": True, "resident": True}, True), (stage(PUBLISHED) | {"arena": True}, True),
]  # fmt: skip


@pytest.mark.parametrize(("switches", "reuse"), SETTINGS)
def test_training_is_the_same_whatever_may_be_kept(monkeypatch, switches, reuse) -> None:
    serve(monkeypatch, tiny_sequence(nodes=9, edges=30, snapshots=LONG))
    task = tiny_workload(model="mpnn_lstm", lr=1e-2, frame=4)
    found, rebuilt, used = [], [], 0
    # All that steady frames need may be 0.4 of what preparation leaves: then nothing is rebuilt.
    for share in (1, 0.2, 0):
        monkeypatch.setattr(Partitions, "keep_bytes", int(share * used) if used else 2**30)
        chosen = {**switches, "reuse": reuse}
        with closing(PipadSystem(s_per=2).open(task, switches=chosen)) as trainer:
            trainer.prepare()
            trainer.meter.reset()
            losses = [trainer.step(i) for _ in range(2) for i in range(trainer.num_frames)]
            counters = dict(trainer.meter.counters)
            partitions = trainer.engine.partitions
            assert partitions.kept_bytes <= partitions.keep_bytes
            used = used or partitions.kept_bytes
        rebuilt.append(counters.pop("rebuilt_groups", 0))
        found.append((losses, counters))
    assert found[0] == found[1] == found[2]
    if switches.get("resident"):  # there it is on the device, and not made again
        assert not rebuilt[0]
    else:
        assert 0 == rebuilt[0] < rebuilt[1] < rebuilt[2]


def test_a_group_goes_as_a_whole_and_never_for_one_that_is_needed_later():
    kept, gone = KeptGroups(lambda: 100), []
    kept.on_evict = gone.append
    kept.schedule = Schedule({(1,): [1], (2,): [2], (3,): [3], (9,): [9]}, 10)
    assert kept.put((3,), "a", "x", 30)
    assert kept.put((3,), "b", "y", 30)
    assert kept.put((2,), "a", "z", 40)
    assert not kept.put((9,), "a", "w", 10)  # all others are needed before
    assert not kept.put((1,), "a", "w", 101)
    assert kept.put((3,), "a", "bigger", 30)  # in the place of itself
    assert not gone
    assert kept.put((1,), "a", "v", 50)
    assert gone == [(3,)]
    assert (kept.nbytes, kept.identities()) == (90, {(1,), (2,)})
