"""Training on vertex-steps beside a second implementation that shares no code with it.

`tests.witness.sequences` agrees with the oracle of sequences, which DGC's workers are compared with
in test_dgc_trainer; test_dgc_plan looks for each vertex-step once in their rows.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pytest
import torch
from dgc_tiny import sequence_of, tiny_workload
from tiny_data import entries_of

from dgbench.systems.base.plain_sequences import PlainSequences
from dgbench.systems.base.sequences import SequenceTrainer, SequenceWorkload
from tests.witness.compared import EXACT, disagreements
from tests.witness.sequences import SequenceWitness

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
    return [[(src, dst) for dst, src in entries_of(csr)] for csr in data.topology]


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
