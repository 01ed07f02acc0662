"""DGC with its compiled operators in float32: on the CPU, and on a CUDA device where one is."""

from __future__ import annotations

import pytest
import torch
from dgc_tiny import random_sequence, tiny_workload

from dgbench.lab.result_checks import largest
from dgbench.models import SEQUENCE_MODELS
from dgbench.systems.base.plain_sequences import PlainSequences
from dgbench.systems.base.race import relative
from dgbench.systems.dgc.system import DgcSystem, DgcTrainer

EPOCHS = 3
TOLERANCE = 2e-5
BASE = {"predictor": False}  # it trains on timed chunks, and decides only who would do what
DEFAULTS = {t.name: t.default for t in DgcSystem.techniques}
OTHERS = [name for name in DEFAULTS if name not in ("stale", "predictor")]  # stale rows learn else
SETTINGS = [BASE, *(BASE | {name: not DEFAULTS[name]} for name in OTHERS)]


@pytest.fixture
def device(where: str) -> str:
    return "cpu" if where == "host" else where


CASES = [("dysat", on, {}) for on in SETTINGS]
CASES += [(m, BASE, {}) for m in SEQUENCE_MODELS if m != "dysat"]
CASES += [
    ("dysat", BASE, {"task": task, "heads": heads, "presence": "edges"})
    for task, heads in (("active", 2), ("link", 1), ("link", 2))
]


@pytest.mark.parametrize(("model", "switches", "fields"), CASES, ids=str)
def test_one_process_equals_the_plain_trainer(device, model, switches, fields):
    """Outputs, gradients and losses of the plain trainer in float64."""
    data, work = random_sequence(12, 7, 20, 5), tiny_workload(model, hidden_dim=8, **fields)
    on = DgcSystem().switches(switches)
    trainer = DgcTrainer(work, data, on, workers=3, device=device)
    trainer.prepare()
    plain = PlainSequences(work, data, dtype=torch.float64)
    assert relative(trainer.evaluate().cpu(), plain.evaluate()) < TOLERANCE
    gradients = {name: grad.cpu() for name, grad in trainer.gradients().items()}
    assert largest(gradients, plain.gradients()) < 10 * TOLERANCE
    losses = [plain.train_epoch() for _ in range(EPOCHS)]
    assert [trainer.train_epoch() for _ in range(EPOCHS)] == pytest.approx(losses, rel=TOLERANCE)
    assert trainer.accuracy() == pytest.approx(plain.accuracy(), abs=0.1)
    trainer.close()
