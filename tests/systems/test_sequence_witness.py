"""Training on vertex-steps beside a second implementation that shares no code with it.

`tests.witness.sequences` agrees with the oracle of sequences and with DGC's workers under every
placement, and each fault that is planted in what they share makes the two disagree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as fields_replaced
from functools import lru_cache
from itertools import pairwise
from typing import Any

import pytest
import torch
from dgc_tiny import sequence_of, tiny_workload

from dgbench.kernels_cuda.scan import CONTINUES, FROM_ZERO
from dgbench.kernels_cuda.supergraph import build_supergraph
from dgbench.models import attention
from dgbench.models.dtdg import dysat
from dgbench.runtime.collectives import LocalCommunicator
from dgbench.systems.base import plain_sequences, sequences
from dgbench.systems.base.plain_sequences import PlainSequences
from dgbench.systems.base.sequences import SequenceTask, SequenceTrainer, SequenceWorkload
from dgbench.systems.dgc import segments
from dgbench.systems.dgc.packing import PackedRows, pack_sequences
from dgbench.systems.dgc.placement import Placement, by_both, by_chunks, by_sequences, by_snapshots
from dgbench.systems.dgc.segments import cut_segments, plan_stages
from dgbench.systems.dgc.trainer import ChunkRankTrainer
from tests.witness.compared import EXACT, disagreements
from tests.witness.sequences import SequenceWitness, check_placement, check_rows, vertex_steps

DOUBLE = torch.float64
MODELS = ("tgcn_2layer", "dysat", "mpnn_lstm_bare")
SINGLE = 1e-6
"""Of DGC's workers, whose A-hat is in single precision."""


@lru_cache
def data_of(kind: str) -> Any:
    """Seven snapshots of nine entities, of which one never exists; of `gaps` one is empty."""
    draw = torch.Generator().manual_seed(4)
    counts = (5, 4, 5, 0, 4, 5, 4) if kind == "gaps" else (5, 7, 4, 6, 5, 4, 6)
    edges = [torch.randint(0, 8, (count, 2), generator=draw).tolist() for count in counts]
    return sequence_of([[tuple(pair) for pair in pairs] for pairs in edges], 9)


def edges_of(data: Any) -> list[list[tuple[int, int]]]:
    """(source, destination) of each snapshot."""
    found = []
    for csr in data.topology:
        ends = csr.indptr.tolist()
        found.append(
            [(int(src), dst) for dst in range(csr.num_rows)
             for src in csr.indices[ends[dst] : ends[dst + 1]]]
        )  # fmt: skip
    return found


def task_of(model: str, **fields: Any) -> SequenceWorkload:
    """A workload of tiny widths with something held out."""
    return tiny_workload(model, **{"held_out": 0.3, **fields})


def plain(task: SequenceWorkload, data: Any) -> SequenceTrainer:
    """The oracle of sequences."""
    return PlainSequences(task, data, dtype=DOUBLE)


def one_worker(temporal: str) -> Callable[[SequenceWorkload, Any], SequenceTrainer]:
    """Opens DGC's engine on one worker, its sequences laid out in one of three ways."""

    def opened(task: SequenceWorkload, data: Any) -> SequenceTrainer:
        graph = sequences.vertex_steps(data, task)
        return ChunkRankTrainer(
            LocalCommunicator(), task, data, by_sequences(graph, 1), dtype=DOUBLE, temporal=temporal
        )

    return opened


OPENED = {
    "plain": plain,
    "packed": one_worker("packed"),
    "padded": one_worker("padded"),
    "packed_sequence": one_worker("packed_sequence"),
}


def drawn(trainer: SequenceTrainer) -> list[tuple[Any, int, bool]]:
    """Scores of a trainer, by entity and snapshot."""
    graph, scored = trainer.graph, trainer.task.scored
    named = [*zip(graph.entity.tolist(), graph.step.tolist(), strict=True), None]
    places = scored.places.tolist()
    if trainer.workload.task == "active":
        at = [named[place] for place in places]
    else:
        at = [tuple(named[place] for place in pair) for pair in zip(*places, strict=True)]
    return list(zip(at, scored.label.tolist(), scored.test.tolist(), strict=True))


def compared(task: SequenceWorkload, kind: str, system: str = "plain") -> dict[str, float]:
    """Where a system and the witness disagree; "draw" where what is scored is no draw."""
    data = data_of(kind)
    trainer = OPENED[system](task, data)
    begin = {name: p.clone() for name, p in trainer.model.state_dict().items()}
    assert trainer.task.scored.label.numel() > 5
    try:
        witness = SequenceWitness(task, edges_of(data), data.features, drawn(trainer), begin)
    except AssertionError:
        return {"draw": 1.0}
    own: dict[str, Any] = {
        "steps": list(zip(trainer.graph.entity.tolist(), trainer.graph.step.tolist(), strict=True)),
        "outputs": trainer.evaluate(),
        "accuracy": trainer.accuracy(),
    }
    own |= {f"gradient {name}": value for name, value in trainer.gradients().items()}
    own |= {f"loss {number}": trainer.train_epoch() for number in range(2)}
    own |= {f"trained {name}": p for name, p in trainer.state().items()}
    own["accuracy after"] = trainer.accuracy()
    hidden = witness.outputs()
    expected: dict[str, Any] = {
        "steps": witness.steps,
        "outputs": torch.stack([hidden[step].detach() for step in witness.steps]),
        "accuracy": witness.accuracy(),
    }
    expected |= {f"gradient {name}": value for name, value in witness.gradients().items()}
    expected |= {f"loss {number}": witness.train() for number in range(2)}
    expected |= {f"trained {name}": p.detach() for name, p in witness.p.items()}
    expected["accuracy after"] = witness.accuracy()
    return disagreements(own, expected, EXACT if system == "plain" else SINGLE)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("presence", ["span", "edges", "tail"])
def test_the_oracle_is_the_witness(model, presence) -> None:
    for task in ("active", "link"):
        assert not compared(task_of(model, task=task, presence=presence), "gaps")


@pytest.mark.parametrize(
    ("model", "fields"),
    [("tgcn_2layer", {"norm": "mean"}), ("dysat", {"heads": 2, "causal": True}),
     ("dysat", {"heads": 2}), ("mpnn_lstm_bare", {"held_out": 0.0, "seed": 4})],
)  # fmt: skip
def test_settings_are_those_of_the_witness(model, fields) -> None:
    assert not compared(task_of(model, **fields), "random")


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("system", ["packed", "padded", "packed_sequence"])
def test_rows_of_sequences_are_the_witness(model, system) -> None:
    assert not compared(task_of(model), "gaps", system)


# --- placements and rows --------------------------------------------------------------------------


def placements(graph: Any, workers: int) -> list[Placement]:
    """All kinds of placements."""
    draw = torch.Generator().manual_seed(2)
    chunk = torch.randint(0, 6, (graph.num_vertices,), generator=draw, dtype=torch.int32)
    owner = torch.randint(0, workers, (6,), generator=draw)
    return [
        by_snapshots(graph, workers), by_snapshots(graph, workers, contiguous=True),
        by_sequences(graph, workers), by_both(graph, workers),
        by_chunks(graph, chunk, 6, owner, workers),
    ]  # fmt: skip


def rows_of_all(graph: Any, placement: Placement, temporal: str) -> list[Any]:
    """(sequences, cells, begins, padding) of every run of every worker, by vertex-steps.

    A segment whose state arrives counts as begun, as its first step does not go on from the cell
    before it.
    """
    cut = cut_segments(graph, placement.time)
    found = []
    for rank in range(placement.workers):
        rows = (placement.time == rank).nonzero().squeeze(1)
        for stage in plan_stages(
            cut, rows, rank, placement.workers, unit=placement.unit, temporal=temporal
        ):
            for group in stage.groups:
                packed, numbers = group.rows, rows[group.steps].tolist()
                ends = [0, *packed.lengths.cumsum(0).tolist()]
                steps, width = group.begins.shape
                cells = [(place % width, place // width) for place in packed.place.tolist()]
                begins = {
                    (row, step): int(group.begins[step, row]) != CONTINUES
                    for step in range(steps) for row in range(width)
                }  # fmt: skip
                padding = [
                    (row, step) for step in range(steps) for row in range(width)
                    if int(packed.sequence[step, row]) < 0
                ]  # fmt: skip
                parts = [slice(a, b) for a, b in pairwise(ends)]
                found.append(
                    ([numbers[p] for p in parts], [cells[p] for p in parts], begins, padding)
                )
    return found


def check_all_rows(temporal: str) -> None:
    """Check every placement's rows; raises AssertionError."""
    data = data_of("gaps")
    graph = sequences.vertex_steps(data, task_of("tgcn_2layer"))
    steps = vertex_steps(edges_of(data)[:-1], 9, "span")
    for workers in (1, 3):
        for placement in placements(graph, workers):
            for side in (placement.structure, placement.time):
                check_placement(steps, side.tolist(), workers)
            runs = rows_of_all(graph, placement, temporal)
            every = [number for run in runs for sequence in run[0] for number in sequence]
            if sorted(every) != list(range(len(steps))):
                raise AssertionError("a vertex-step is run by no worker, or twice")
            for numbers, cells, begins, padding in runs:
                mine = sorted(number for sequence in numbers for number in sequence)
                local = [[mine.index(number) for number in sequence] for sequence in numbers]
                check_rows([steps[number] for number in mine], local, cells, begins, padding)


@pytest.mark.parametrize("temporal", ["packed", "padded", "packed_sequence"])
def test_every_vertex_step_is_run_once_and_padding_by_nobody(temporal) -> None:
    check_all_rows(temporal)


@pytest.mark.parametrize("model", MODELS)
def test_what_lies_in_padding_changes_nothing(model, monkeypatch) -> None:
    """Neither results nor gradients, whatever it is."""
    unequal = pack_sequences(torch.tensor([4, 3, 3, 1]))
    assert unequal.padding
    was = sequences.sequence_model(task_of(model)).double()
    draw = torch.Generator().manual_seed(3)
    values = torch.randn(unequal.steps, was.spatial_dim, generator=draw, dtype=DOUBLE)
    found = []
    for filled in (0.0, 7.0):
        leaf = values.clone().requires_grad_()
        x = unequal.pack(leaf)
        x = torch.where((unequal.sequence < 0).unsqueeze(2), filled, x)
        out = unequal.unpack(was.temporal(x, unequal)[0])
        was.zero_grad()
        (out * out).sum().backward()
        grads = [p.grad.clone() for p in was.parameters() if p.grad is not None]
        found.append([out.detach(), leaf.grad, *grads])
    for own, other in zip(*found, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-13, atol=1e-13)
    assert len(found[0]) > 4


# --- planted faults -------------------------------------------------------------------------------

Plant = Callable[[pytest.MonkeyPatch], None]
FAULTS: dict[str, tuple[Plant, str, str, str]] = {}
"""By what they do: planted in what trainers and oracles share, with model, task and system."""


def fault(
    model: str = "tgcn_2layer", task: str = "active", system: str = "plain"
) -> Callable[[Plant], Plant]:
    """Register a fault by the words of its name."""

    def register(plant: Plant) -> Plant:
        FAULTS[plant.__name__.replace("_", " ")] = plant, model, task, system
        return plant

    return register


def replace(patch: pytest.MonkeyPatch, owner: Any, name: str, change: Callable[..., Any]) -> None:
    """Let `change` answer, which gets what was there before its arguments."""
    was = getattr(owner, name)
    patch.setattr(owner, name, lambda *given, **named: change(was, *given, **named))


def other_scored(patch: pytest.MonkeyPatch, change: Callable[[Any], Any]) -> None:
    """Let a loss be summed over something else."""
    replace(
        patch,
        SequenceTask,
        "loss_sum",
        lambda was, self, head, hidden, part: was(self, head, hidden, change(part)),
    )


@fault()
def what_is_held_out_is_trained_on(patch) -> None:
    other_scored(patch, lambda part: fields_replaced(part, test=torch.zeros_like(part.test)))


@fault()
def half_of_what_is_scored_is_trained_on(patch) -> None:
    def half(part):
        some = torch.arange(part.label.numel()) % 2 == 0
        return fields_replaced(part, test=part.test | some)

    other_scored(patch, half)


@fault(task="link")
def labels_are_turned_round(patch) -> None:
    other_scored(patch, lambda part: fields_replaced(part, label=1 - part.label))


@fault()
def accuracy_is_of_what_is_trained_on(patch) -> None:
    replace(patch, SequenceTask, "hits", lambda was, self, head, hidden, part: was(
        self, head, hidden, fields_replaced(part, test=~part.test)
    ))  # fmt: skip


@fault()
def labels_are_of_the_same_snapshot(patch) -> None:
    replace(patch, sequences, "_active", lambda was, data, *given: was(
        fields_replaced(data, topology=[*data.topology[:1], *data.topology[:-1]]), *given
    ))  # fmt: skip


@fault(task="link")
def pairs_are_of_the_same_snapshot(patch) -> None:
    replace(patch, sequences, "sample_pairs", lambda was, csr, theta, *, seed, step: was(
        data_of("gaps").topology[step - 1], theta, seed=seed, step=step
    ))  # fmt: skip


@fault(task="link")
def pairs_that_are_none_are_edges(patch) -> None:
    def doubled(was, *given, **how):
        pairs, label = was(*given, **how)
        count = label.numel() // 2
        return torch.cat([pairs[:, count:], pairs[:, count:]], dim=1), label

    replace(patch, sequences, "sample_pairs", doubled)


@fault()
def one_vertex_step_is_scored_for_all(patch) -> None:
    def alike(was, *given):
        places, label = was(*given)
        return places[:1].expand_as(places).clone(), label

    replace(patch, sequences, "_active", alike)


@fault(task="link")
def an_absent_vertex_has_the_output_of_another(patch) -> None:
    patch.setattr(sequences, "_with_zero", lambda hidden: torch.cat([hidden, hidden[:1]]))


@fault()
def the_loss_is_a_mean_over_all(patch) -> None:
    replace(patch, SequenceTask, "__init__", lambda was, self, *given: (
        was(self, *given), setattr(self, "count", self.scored.label.numel()), None
    )[2])  # fmt: skip


@fault()
def vertices_exist_where_they_have_an_edge(patch) -> None:
    replace(
        patch,
        sequences,
        "build_supergraph",
        lambda was, csrs, **how: build_supergraph(csrs, **how | {"presence": "edges"}),
    )


@fault()
def edges_lead_the_other_way(patch) -> None:
    replace(patch, plain_sequences, "coordinates", lambda was, csr: was(csr)[::-1])


@fault()
def loops_are_left_out(patch) -> None:
    def bare(was, self, *given):
        was(self, *given)
        self._loop = torch.zeros_like(self._loop)

    replace(patch, plain_sequences._PlainSnapshot, "__init__", bare)


@fault()
def an_edge_counts_twice(patch) -> None:
    def twice(was, self, *given):
        was(self, *given)
        self._value[:1] *= 2

    replace(patch, plain_sequences._PlainSnapshot, "__init__", twice)


@fault()
def features_are_of_the_next_snapshot(patch) -> None:
    replace(
        patch,
        plain_sequences._PlainSnapshot,
        "__init__",
        lambda was, self, data, t, *given: was(
            self, fields_replaced(data, features=data.features.roll(-1, 0)), t, *given
        ),
    )


def other_padded(patch: pytest.MonkeyPatch, change: Callable[[Any], None]) -> None:
    """Let the oracle's rows be others."""

    def changed(was, self, *given):
        was(self, *given)
        change(self)

    replace(patch, plain_sequences._Padded, "__init__", changed)


@fault()
def states_are_lost_between_steps(patch) -> None:
    other_padded(patch, lambda rows: rows.begins.fill_(FROM_ZERO))


@fault()
def steps_of_a_sequence_come_backwards(patch) -> None:
    def turned(rows):
        width = rows.sequence.shape[1]
        alive = rows.sequence >= 0
        length = alive.sum(0)
        row, step = rows.place % width, rows.place // width
        rows.place = (length[row] - 1 - step) * width + row

    other_padded(patch, turned)


@fault("dysat")
def attention_lets_padding_in(patch) -> None:
    other_padded(patch, lambda rows: rows.sequence.copy_(
        torch.arange(rows.sequence.shape[1]).expand_as(rows.sequence)
    ))  # fmt: skip


@fault("dysat")
def attention_sees_no_later_step(patch) -> None:
    replace(
        patch,
        dysat,
        "plain_packed_attention",
        lambda was, *given, **how: was(*given, **how | {"causal": True}),
    )


@fault("dysat", system="packed")
def attention_reads_other_sequences_of_a_row(patch) -> None:
    replace(
        patch,
        attention,
        "plain_packed_attention",
        lambda was, q, k, v, sequence=None, **how: was(q, k, v, None, **how),
    )


@fault("mpnn_lstm_bare", system="packed")
def a_state_crosses_into_the_next_sequence(patch) -> None:
    def crossed(was, self, starts):
        begins = was(self, starts)
        begins[1:] = CONTINUES
        return begins

    replace(patch, PackedRows, "begins_from", crossed)


@fault(system="packed")
def two_sequences_stand_in_one_place(patch) -> None:
    def collided(was, lengths, *given):
        rows = was(lengths, *given)
        row, offset = rows.row.clone(), rows.offset.clone()
        row[1], offset[1] = row[0], offset[0]
        return fields_replaced(rows, row=row, offset=offset)

    replace(patch, segments, "pack_sequences", collided)


@fault(system="packed")
def a_vertex_step_is_run_in_the_place_of_another(patch) -> None:
    def repeated(was, *given):
        group = was(*given)
        group.steps[1:2] = group.steps[:1]
        return group

    replace(patch, segments, "_group", repeated)


@fault()
def parameters_are_never_updated(patch) -> None:
    patch.setattr(torch.optim.Adam, "step", lambda self: None)


@fault("dysat")
def gradients_add_up_over_epochs(patch) -> None:
    patch.setattr(torch.optim.Adam, "zero_grad", lambda *_, **__: None)


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_seen(name, monkeypatch) -> None:
    plant, model, task, system = FAULTS[name]
    plant(monkeypatch)
    assert compared(task_of(model, task=task), "gaps", system)


PLACED: dict[str, Plant] = {
    "a sequence is run twice": lambda patch: replace(
        patch, segments, "group_sequences",
        lambda was, *given: was(*given) * 2,
    ),
    "a sequence is not run": lambda patch: replace(
        patch, segments, "group_sequences",
        lambda was, *given: was(*given)[:-1],
    ),
    "a state crosses into the next sequence": a_state_crosses_into_the_next_sequence,
    "two sequences stand in one place": two_sequences_stand_in_one_place,
    "a vertex-step is run in the place of another": a_vertex_step_is_run_in_the_place_of_another,
}  # fmt: skip


@pytest.mark.parametrize("name", PLACED)
def test_a_planted_fault_of_rows_is_seen(name, monkeypatch) -> None:
    PLACED[name](monkeypatch)
    with pytest.raises(AssertionError):
        check_all_rows("packed")


@pytest.mark.parametrize("worker", [-1, 3])
def test_a_vertex_step_on_no_worker_is_seen(worker) -> None:
    with pytest.raises(AssertionError):
        check_placement([(0, 0), (0, 1)], [0, worker], 3)
