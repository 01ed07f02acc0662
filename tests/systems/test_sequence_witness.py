"""Training on vertex-steps beside a second implementation that shares no code with it.

`tests.witness.sequences` agrees with the oracle of sequences, which DGC's workers are compared with
in test_dgc_trainer, and rows of those hold each vertex-step once under every placement.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import Any

import pytest
import torch
from dgc_tiny import placements, sequence_of, tiny_workload

from dgbench.kernels_cuda.scan import CONTINUES
from dgbench.systems.base import sequences
from dgbench.systems.base.plain_sequences import PlainSequences
from dgbench.systems.base.sequences import SequenceTrainer, SequenceWorkload
from dgbench.systems.dgc.placement import Placement
from dgbench.systems.dgc.segments import cut_segments, plan_stages
from tests.witness.compared import EXACT, disagreements
from tests.witness.sequences import SequenceWitness, check_placement, check_rows, vertex_steps

MODELS = ("tgcn_2layer", "dysat", "mpnn_lstm_bare")


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


def compared(task: SequenceWorkload, kind: str) -> dict[str, float]:
    """Where the oracle and the witness disagree; "draw" where what is scored is no draw."""
    data = data_of(kind)
    trainer = PlainSequences(task, data, dtype=torch.float64)
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
    return disagreements(own, expected, EXACT)


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
