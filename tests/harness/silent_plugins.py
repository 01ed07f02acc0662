"""Third-party systems that train fast and wrong in silence, and the paper that races them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from plugin_folder import install

PLUGIN: Final = Path(__file__).parents[1] / "plugin"

SILENT: Final = {
    "scaled": """
class Trained(ReferenceTrainer):
    def outputs(self, times):
        return [1.5 * one for one in super().outputs(times)]
""",
    "stale": """
class Cached(EdgeListAggregator):
    def first(self, t):
        kept = self.__dict__.setdefault("cache", {})  # never renewed: right for a while
        if t % 16 not in kept:
            kept[t % 16] = super().first(t)
        return kept[t % 16]


class Trained(ReferenceTrainer):
    def __init__(self, workload, data, **options):
        super().__init__(workload, data, **options)
        self.aggregator.__class__ = Cached
""",
    "detached": """
class Trained(ReferenceTrainer):
    def outputs(self, times):
        return [one.detach() for one in super().outputs(times)]
""",
    "biased": """
class Trained(ReferenceTrainer):
    def outputs(self, times):
        name, leaf = max(self.trained().items(), key=lambda item: item[1].numel())
        if leaf.requires_grad and not leaf._backward_hooks:
            leaf.register_hook(lambda gradient: 1.05 * gradient)
        return super().outputs(times)
""",
    "idle": """
class Trained(ReferenceTrainer):
    taken = 0

    def enqueue(self, frame):
        self.taken += 1
        if self.taken <= 4:
            return super().enqueue(frame)
        with torch.no_grad():  # converged, surely
            return Readback(self._loss(frame))
""",
    "owing": """
class Trained(ReferenceTrainer):
    def outputs(self, times):
        self.meter.count("edges_aggregated", -10**9)
        return super().outputs(times)
""",
    "shared": """
right = torch.Tensor.index_add
torch.Tensor.index_add = lambda self, *args, **named: 1.5 * right(self, *args, **named)


class Trained(ReferenceTrainer):
    pass
""",
}
"""Trainers by name, each wrong in one way; the reference in its process shares the last one's."""

FOREIGN: Final = {
    "foreign": """
    def step(self, frame):
        return 0.98 * super().step(frame)
""",
}
"""Methods of trainers in a process of their own, by name; numpy_tgcn.py is right without them."""

SOUND: Final = "class Trained(ReferenceTrainer):\n    pass\n"

_SYSTEM: Final = """
import torch

from dgbench.runtime.readback import Readback
from dgbench.systems.reference.system import EdgeListAggregator, ReferenceSystem, ReferenceTrainer

{trained}

class Plugin(ReferenceSystem):
    name, title, kind = "{name}", "Title of {name}", "paper"
    about, provenance = "made by a test", "written for a test"
    trainer = Trained
"""

_FOREIGN_SYSTEM: Final = """
import sys
from pathlib import Path

from dgbench.systems.base.foreign import Foreign, ForeignSystem


class Plugin(ForeignSystem):
    name, title, kind = "{name}", "Title of {name}", "paper"
    about, provenance = "made by a test", "written for a test"
    foreign = Foreign(sys.executable, "far_{name}", Path(__file__).parent)
"""

_FOREIGN_MODULE: Final = """
import sys

sys.path.append({folder!r})

from numpy_tgcn import NumpyTrainer


class open_trainer(NumpyTrainer):
{method}
"""

_PAPER: Final = """
from pathlib import Path

from msgspec.structs import replace

from dgbench.lab.compare import ratio
from dgbench.lab.evidence import finding, missing
from dgbench.lab.grid import TrainingRace
from dgbench.lab.table import Table
from dgbench.systems.base import Paper, Workload
from dgbench.systems.base.race import timed

SYSTEMS = {systems}


class Race(TrainingRace):
    paper, name = "silent", "race"
    title, question = "A race", "Which one is right?"
    claims = tuple(f"silent-{{name}}" for name in SYSTEMS)
    axes = {{"dataset": {{None: ("chickenpox",)}}}}
    group = "{{dataset}}"
    repeats = {{None: 1}}

    def contenders(self, preset, device):
        return ("reference", *SYSTEMS)

    def cells(self, preset, device):
        planned = super().cells(preset, device)
        return [replace(cell, phases=False) for cell in planned]

    def run(self, cell, context):
        task = Workload(dataset="chickenpox", snapshots=40, frame=8,
                        model="tgcn_model", feature_dim=4, hidden_dim=8)
        return timed(cell.params["system"], task, context)


def fast(claim, rows):
    steps = Table.of(rows, experiment="race").where("counted_steps")
    mine = steps.where(system=claim.id.partition("-")[2])
    share = ratio(mine, steps.where(system="reference"))
    if share is None:
        return missing("the race was not run")
    return finding(mine.rows, measured=share.value, holds=True)


PAPER = Paper(
    name="silent", title="Silent", venue="a test", about="A paper of a third party.",
    system="sound", ledger=Path(__file__).with_name("silent.yaml"), experiments=(Race(),),
    checks={{f"silent-{{name}}": fast for name in SYSTEMS}},
)
"""

_CLAIM: Final = """- id: silent-{name}
  where: Section 1
  statement: It trains.
  kind: ordering
  value: it trains
  needs: {{gpus: 0, cpu_only_ok: true}}
"""


def install_silent(folder: Path) -> None:
    """Write all of `SILENT` and `FOREIGN`, the system `sound`, and the paper `silent`."""
    near = {**SILENT, "sound": SOUND}
    for name, trained in near.items():
        install(folder, name, _SYSTEM.format(name=name, trained=trained))
    for name, method in FOREIGN.items():
        install(folder, name, _FOREIGN_SYSTEM.format(name=name))
        module = _FOREIGN_MODULE.format(folder=str(PLUGIN), method=method)
        (folder / f"far_{name}.py").write_text(module)
    systems = (*near, *FOREIGN)
    (folder / "silent.yaml").write_text("".join(_CLAIM.format(name=name) for name in systems))
    install(folder, "silent", _PAPER.format(systems=systems), papers="PAPER")
