"""PiPAD: every switch trains like the reference, and every byte follows the formulas."""

from __future__ import annotations

import itertools
from contextlib import closing
from functools import cache

import pytest
import torch
from tiny_data import TinySequence, entries_of, serve, tiny_sequence, tiny_workload

from dgbench.runtime.errors import InvalidInputError, UnknownKeyError
from dgbench.systems.base import Workload
from dgbench.systems.base.race import relative
from dgbench.systems.pipad import PipadSystem, kernels, paper_kernel
from dgbench.systems.pipad.controller import TrainingPhase
from dgbench.systems.pipad.ladders import BARE, PUBLISHED, REUSED, stage
from dgbench.systems.reference import ReferenceSystem

MODELS = ("tgcn_model", "evolvegcn", "mpnn_lstm")
NAMES = [t.name for t in PipadSystem.techniques]
DEFAULTS = {t.name: t.default for t in PipadSystem.techniques}
OFF = dict.fromkeys(NAMES, False)
ON = dict.fromkeys(NAMES, True)
SNAPSHOTS = 7
"""Of a sequence that is trained for epochs; no multiple of a size of partitions."""
STEPS = 9
"""Three epochs of `SNAPSHOTS`, of which two prepare where nothing else has."""
TOLERANCE = 1e-5


def switched() -> list[tuple[str, dict[str, bool]]]:
    """All off, all on, as published and each off with every model; each alone on, and ways to copy
    of which any three meet, with one model in turn. Each off beside copies: test_cuda_pipad."""
    off = [{name: not DEFAULTS[name]} for name in NAMES]
    copies = ("arena", "pipeline", "device_buffer", "reuse")
    turned = [{**ON, "reuse": False, "cache_rule": False}]
    turned += [{**OFF, name: True} for name in NAMES]
    turned += [
        dict(zip(copies, (*on, sum(on) % 2 == 1), strict=True))
        for on in itertools.product((False, True), repeat=3)
    ]
    published = [{**stage(PUBLISHED), "arena": arena} for arena in (False, True)]
    every = itertools.product(MODELS, [OFF, ON, *published, *off])
    return [*every, *zip(itertools.cycle(MODELS), turned)]


@cache
def graph(weighted: bool = False, snapshots: int = 13) -> TinySequence:
    return tiny_sequence(nodes=15, edges=50, snapshots=snapshots, weighted=weighted)


@cache
def wanted(work: Workload, weighted: bool, snapshots: int) -> tuple[dict, list[float], dict]:
    """Output and gradients of the last frame, losses of `STEPS` in order of time and parameters
    after them, of the reference in float64."""
    trainer = ReferenceSystem(torch.float64).open(work)
    first = answers(trainer)
    return first, [trainer.step(i % trainer.num_frames) for i in range(STEPS)], trainer.state()


def answers(trainer) -> dict[str, torch.Tensor]:
    last = trainer.num_frames - 1
    return {"output": trainer.evaluate(last), **trainer.gradients(last)}


def apart(found: dict[str, torch.Tensor], want: dict[str, torch.Tensor]) -> float:
    """The norm of a difference over that of what is wanted."""
    return relative(*(torch.cat([one[key].flatten() for key in want]) for one in (found, want)))


def same_training(
    monkeypatch, work: Workload, system: PipadSystem, switches, *, weighted=False,
    snapshots=SNAPSHOTS,
) -> None:  # fmt: skip
    serve(monkeypatch, graph(weighted, snapshots))
    first, losses, parameters = wanted(work, weighted, snapshots)
    with closing(system.open(work, switches=switches)) as trainer:
        trainer.prepare()
        assert apart(answers(trainer), first) < TOLERANCE
        for i, want in enumerate(losses):
            assert trainer.step(i % trainer.num_frames) == pytest.approx(want, rel=TOLERANCE)
        assert apart(trainer.state(), parameters) < TOLERANCE


@pytest.mark.parametrize(("model", "switches"), switched())
def test_every_switch_trains_like_the_reference(monkeypatch, model, switches) -> None:
    work = tiny_workload(model=model, loss_on="every")
    same_training(monkeypatch, work, PipadSystem(s_per=3), switches)


FRAMES = (  # frame, stride and snapshots
    (4, 1, 5), (4, 2, 13), (4, 3, 6), (1, 1, 6), (3, 5, 13), (12, 1, 13)
)  # fmt: skip
"""One frame alone, a stride, a short last frame, frames of one, gaps between them, one of all."""
SETTINGS = [
    # Any two of model, norm, task, arena and weights meet.
    *(({"model": model, "norm": ("sym", "mean")[norm], "task": ("node", "link")[norm ^ arena]},
       {"s_per": 2}, {"arena": bool(arena)}, {"weighted": (norm + arena + n) % 2 == 1})
      for n, model in enumerate(MODELS) for norm in (0, 1) for arena in (0, 1)),
    ({"model": "evolvegcn", "cell": "lstm", "loss_on": "every"}, {}, {}, {"weighted": True}),
    # A frame that is no multiple of any size of partitions.
    *(({"model": "evolvegcn", "frame": 9}, {"s_per": s_per, "slice_cap": cap},
       {"slice_coalescing": coalesced, "arena": s_per != 4}, {"snapshots": 14})
      for s_per, cap, coalesced in ((2, 8, True), (4, 16, False), (8, 32, True), (8, 64, False))),
    *(({"model": MODELS[(n + k) % 3], "frame": frame, "stride": stride}, {},
       {"arena": (frame + stride) % 2 == 1}, {"snapshots": snapshots})
      for n, (frame, stride, snapshots) in enumerate(FRAMES) for k in (0, 1)),
]  # fmt: skip


@pytest.mark.parametrize(("task", "options", "switches", "data"), SETTINGS)
def test_norms_tasks_sizes_and_frames(monkeypatch, task, options, switches, data) -> None:
    """With and without reuse."""
    for reuse in (False, True):
        chosen = {**switches, "reuse": reuse}
        same_training(monkeypatch, tiny_workload(**task), PipadSystem(**options), chosen, **data)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("switches", [{}, {"arena": True}, {"reuse": False}], ids=str)
def test_preparing_epochs_train_alike(monkeypatch, model, switches) -> None:
    serve(monkeypatch, graph(snapshots=SNAPSHOTS))
    work = tiny_workload(model=model)
    _, losses, _ = wanted(work, False, SNAPSHOTS)
    trainer = PipadSystem().open(work, switches=switches)
    for i, want in enumerate(losses):
        phase = TrainingPhase.STEADY if i >= 2 * trainer.num_frames else TrainingPhase.PREPARING
        assert trainer.controller.phase is phase
        assert trainer.step(i % trainer.num_frames) == pytest.approx(want, rel=TOLERANCE)
    assert trainer.report()["partition_size"] >= 1
    trainer.close()


def piece_words(found: set[tuple[int, int]], nodes: int, sliced: bool, cap: int) -> int:
    if not sliced:
        return len(found) + nodes + 1
    degrees = [sum(1 for row, _ in found if row == v) for v in range(nodes)]
    return len(found) + 2 * sum(-(-degree // cap) for degree in degrees) + 1


def group_bytes(data: TinySequence, group: range, on: dict[str, bool], cap: int) -> int:
    snapshots = [set(entries_of(data.topology[t])) for t in group]
    weighted = data.topology[0].values is not None
    if not on["overlap"]:
        pieces = snapshots
        values = sum(map(len, snapshots))
    else:
        shared = set.intersection(*snapshots)
        pieces = [shared, *(found - shared for found in snapshots)]
        values = len(shared) * len(group) + sum(len(found - shared) for found in snapshots)
    words = sum(piece_words(p, data.num_nodes, on["sliced_csr"], cap) for p in pieces)
    return 4 * (words + (values if weighted else 0))


def epoch_bytes(
    data: TinySequence, work: Workload, on: dict[str, bool], *, s_per: int, cap: int, held: int
) -> tuple[int, int]:
    """Bytes of one epoch after preparation, and of what is sent ahead for the one after it."""
    frames = (len(data) - work.frame - 1) // work.stride + 1
    all_times = [range(i * work.stride, i * work.stride + work.frame) for i in range(frames)]
    row = 4 * data.num_nodes * work.feature_dim
    grouped = on["parallel_aggregation"] or on["overlap"]
    size = min(s_per, work.frame) if grouped else 1
    total, resident, stays = 0, set(), set()

    def units(times: range) -> list[int]:
        groups = [times[i : i + size] for i in range(0, len(times), size)]
        topology = []
        for group in groups:
            topology.append(0 if group in stays else group_bytes(data, group, on, cap))
            if on["resident"]:
                stays.add(group)
        if not on["reuse"]:
            return [t + row * len(g) for t, g in zip(topology, groups, strict=True)]
        first = row * len(set(times) - resident)
        if work.model == "mpnn_lstm":
            first += row + 4 * data.num_nodes * (work.frame - 1)
        return [first] if work.model == "tgcn_model" else [first, *topology]

    for times, following in zip(all_times, [*all_times[1:], all_times[0]], strict=True):
        total += sum(units(times))
        resident = set(sorted(set(times) & set(following))[:held])
    return total, units(all_times[0])[0]


BYTES = [
    {}, {"reuse": False}, {"overlap": False}, {"sliced_csr": False}, {"device_buffer": False},
    {"overlap": False, "sliced_csr": False, "parallel_aggregation": False},
    {"resident": True}, {"resident": True, "reuse": False}, {"compiled_step": False},
]  # fmt: skip


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("switches", BYTES, ids=str)
def test_bytes_equal_the_formulas(monkeypatch, switches, model) -> None:
    weighted = (BYTES.index(switches) + MODELS.index(model)) % 2 == 1
    data, work = graph(weighted, 9), tiny_workload(model=model)
    serve(monkeypatch, data)
    on = {**DEFAULTS, **switches}
    held = work.frame if on["device_buffer"] else 0
    expected, ahead = epoch_bytes(data, work, on, s_per=3, cap=8, held=held)
    for arena, pipeline in ((False, True), (True, False), (True, True)):
        given = {**switches, "arena": arena, "pipeline": pipeline}
        trainer = PipadSystem(s_per=3, slice_cap=8).open(work, switches=given)
        trainer.prepare()
        trainer.meter.reset()
        trainer.train_epoch()
        counters = trainer.meter.counters
        # With the pipeline on, the first unit of the next epoch is already on its way.
        extra = ahead if arena and pipeline else 0
        assert counters["bytes_h2d_counted"] == expected + extra, given
        if arena:
            assert counters["bytes_h2d_moved"] == counters["bytes_h2d_counted"]
        trainer.close()


@pytest.mark.parametrize("held", [0, 1, 2, 99])
@pytest.mark.parametrize("arena", [False, True], ids=["counted", "arena"])
def test_the_buffer_keeps_what_its_bytes_allow(monkeypatch, arena, held) -> None:
    data, work, row = graph(snapshots=9), tiny_workload(model="tgcn_model"), 4 * 15 * 3
    system, switches = PipadSystem(buffer_bytes=held * row), {"arena": arena, "pipeline": False}
    same_training(monkeypatch, work, system, switches, snapshots=len(data))
    trainer = system.open(work, switches=switches)
    trainer.prepare()
    trainer.meter.reset()
    trainer.train_epoch()
    on = {**DEFAULTS, **switches}
    expected, _ = epoch_bytes(data, work, on, s_per=8, cap=32, held=held)
    assert trainer.meter.counters["bytes_h2d_counted"] == expected
    assert trainer.engine.buffer.nbytes == (min(held, 3) * row if arena else 0)
    assert trainer.report()["buffer_memory"] == min(held, 4) * row
    trainer.close()


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("reuse", [False, True])
def test_frames_in_any_order_and_looks_in_between(monkeypatch, model, reuse) -> None:
    serve(monkeypatch, graph())
    work = tiny_workload(model=model)
    trainer = PipadSystem(s_per=2).open(work, switches={"arena": True, "reuse": reuse})
    truth = ReferenceSystem(torch.float64).open(work)
    trainer.prepare()
    for frame in (3, 3, 0, 7, 1, 8, 0):
        assert trainer.step(frame) == pytest.approx(truth.step(frame), rel=TOLERANCE)
        look = (frame * 5) % truth.num_frames
        assert relative(trainer.evaluate(look), truth.evaluate(look)) < TOLERANCE
        trainer.gradients((look + 1) % truth.num_frames)
    trainer.close()


def test_profiling_leaves_no_trace(monkeypatch) -> None:
    serve(monkeypatch, graph())
    trainer = PipadSystem().open(tiny_workload(model="mpnn_lstm"))
    before, random = trainer.state(), torch.random.get_rng_state()
    trainer.prepare()
    assert torch.equal(torch.random.get_rng_state(), random)
    after = trainer.state()
    assert all(torch.equal(after[key], before[key]) for key in before)


def test_what_is_ours_is_off_in_the_published_form() -> None:
    on = PipadSystem().switches(stage(PUBLISHED))
    ours = {t.name for t in PipadSystem.techniques if t.source.startswith("ours")}
    assert not any(on[name] for name in ours)
    assert not any(stage(BARE).values())
    assert {name for name, is_on in stage(REUSED).items() if is_on} == {"reuse", "pipeline"}


def test_bad_settings_are_named() -> None:
    for name, value in (("s_per", 0), ("slice_cap", 7), ("buffer_bytes", -1)):
        with pytest.raises(InvalidInputError, match=name):
            PipadSystem(**{name: value})
    with pytest.raises(UnknownKeyError, match="reus"):
        PipadSystem().switches({"reus": True})


@pytest.mark.parametrize(
    ("arena", "s_per", "reuse"),
    [(False, 1, True), (False, 2, False), (True, 1, False), (True, 2, True)],
)
def test_algorithm_1_alone_aggregates(monkeypatch, arena, s_per, reuse) -> None:
    """In preparation and in training, forward and backward, whatever a partition holds."""

    def ours(*_, **__):
        raise AssertionError("a product of ours")

    for node in (kernels.PartitionAggregation, kernels.SnapshotAggregation,
                 kernels.ReceivedAggregation):  # fmt: skip
        monkeypatch.setattr(node, "apply", ours)
    monkeypatch.setattr(kernels, "aggregate_parts_scatter", ours)
    taken: dict[str, int] = {}
    for name in ("aggregate_parts_sliced", "scatter_parts_sliced"):
        run = getattr(paper_kernel, name)

        def counted(parts, x, run=run, name=name, **named):
            taken[name] = taken.get(name, 0) + 1
            return run(parts, x, **named)

        monkeypatch.setattr(paper_kernel, name, counted)
    serve(monkeypatch, tiny_sequence(nodes=15, edges=50, snapshots=8))
    switches = stage(PUBLISHED) | {"arena": arena, "reuse": reuse}
    task = tiny_workload(model="evolvegcn", frame=4)
    with closing(PipadSystem(s_per=s_per).open(task, switches=switches)) as trainer:
        trainer.prepare()
        trainer.step(0)
        taken.clear()
        trainer.step(1)
    assert taken["aggregate_parts_sliced"] >= 4 // s_per
    # Where nothing travels the transpose is gathered from.
    assert taken.get("scatter_parts_sliced", 0) == (4 // s_per if arena else 0)
