"""Loading of one worker's chunks with and without chunk fusion (Figure 15, section 5.1).

What an epoch loads before it computes: the features of each group's rows and of those that they
hear, with the group's matrix; in later rounds the rows that the round before made; and for the
time encoder the rows of sequences, zeros between them included. On a CUDA device features and
matrices come from pinned memory, on a CPU everything is gathered into memory of its own.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from dgbench.lab.result_checks import ResultCheck, at_most
from dgbench.systems.base.race import relative

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence
    from dgbench.systems.base.sequences import SequenceWorkload
    from dgbench.systems.dgc.dealing import WorkAssignment
    from dgbench.systems.dgc.plan import VertexStepGroup, WorkerPlan
    from dgbench.systems.dgc.segments import TimeGroup
    from dgbench.systems.dgc.volumes import Shape

OFF, SPATIAL, TEMPORAL, ON = "w/o CF", "spatial fusion", "temporal fusion", "CF"
SETTINGS: Final[dict[str, tuple[str, str]]] = {
    OFF: ("none", "padded"),
    SPATIAL: ("whole", "padded"),
    TEMPORAL: ("none", "packed"),
    ON: ("whole", "packed"),
}
"""`fusion` and `temporal` of `plan_worker`."""
INDEX_BYTES: Final = 4


def loaded_bytes(plan: WorkerPlan, shape: Shape) -> int:
    """Bytes that one worker of a recurrent model loads in an epoch, by formula (section 4.3 for the
    zeros): rows of all rounds, matrices, rows of sequences with their zeros."""
    groups = plan.structure.groups
    runs = [group for stage in plan.time.stages for group in stage.groups]
    runs += plan.time.groups
    matrices = sum(g.csr.nnz * (INDEX_BYTES + 4) + (g.rows.numel() + 1) * 8 for g in groups)
    rows = plan.time.padding + sum(run.steps.numel() for run in runs)
    features = plan.structure.loads * sum(shape.round_dims)
    return 4 * (features + rows * shape.spatial_dim) + matrices


class Loader:
    """Loads as a plan says, over made-up numbers: what they are does not matter to a copy.

    What arrives has its place from the beginning, so that no time goes into asking for memory.
    """

    def __init__(self, plan: WorkerPlan, shape: Shape, device: str) -> None:
        """Bring to their places what an epoch finds there."""
        self.device = torch.device(device)
        self._cuda = self.device.type == "cuda"
        draw = torch.Generator().manual_seed(1)
        count = plan.structure.rows.numel() + plan.structure.halo.numel()
        tables = [torch.rand(count, width, generator=draw) for width in shape.round_dims]
        last = torch.rand(plan.time.rows.numel(), shape.spatial_dim, generator=draw)
        self._features, self._later = tables[0], [t.to(self.device) for t in tables[1:]]
        self._last = last.to(self.device)
        self._groups = [self._group(group, shape) for group in plan.structure.groups]
        csr = plan.structure.csr
        own = torch.arange(csr.num_rows)
        self._used = torch.unique(torch.cat([own, csr.indices.long()]))
        runs = [group for stage in plan.time.stages for group in stage.groups]
        self._runs = [self._run(group, shape) for group in (*runs, *plan.time.groups)]

    def load(self) -> None:
        """Load everything that one epoch needs."""
        for columns, _, staging, arrived, matrix, copies, _ in self._groups:
            if self._cuda:
                torch.index_select(self._features, 0, columns, out=staging)
                arrived.copy_(staging, non_blocking=True)
            else:
                torch.index_select(self._features, 0, columns, out=arrived)
            for into, part in zip(copies, matrix, strict=True):
                into.copy_(part, non_blocking=True)
        for k, table in enumerate(self._later):
            for _, columns, _, _, _, _, outs in self._groups:
                torch.index_select(table, 0, columns, out=outs[k])
        for steps, place, rows in self._runs:
            rows.zero_()
            rows.index_copy_(0, place, self._last.index_select(0, steps))
        if self._cuda:
            torch.cuda.synchronize(self.device)

    def gap(self) -> float:
        """Relative gap between rows put back from what was loaded and those that were to load.

        0 after `load`, unless something was left out or went astray.
        """
        features = torch.full_like(self._features, torch.inf)
        for columns, _, _, arrived, *_ in self._groups:
            features[columns] = arrived.cpu()
        last = torch.full_like(self._last, torch.inf)
        for steps, place, rows in self._runs:
            last[steps] = rows[place]
        wanted = self._features.index_select(0, self._used)
        gaps = relative(features[self._used], wanted), relative(last.cpu(), self._last.cpu())
        return max(gaps)

    def check(self, name: str) -> ResultCheck:
        """A check that every row arrived as it was, after loads of a setting of this name."""
        count = self._used.numel() + self._last.shape[0]
        return at_most(
            "loaded rows", self.gap(), 0.0, against="rows to load", compared=count, part=name,
            system=name,
        )  # fmt: skip

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors that an epoch fills: features, matrices, later rounds, rows."""
        filled = [tensor for group in self._groups for tensor in (group[3], *group[5], *group[6])]
        filled += [rows for _, _, rows in self._runs]
        return sum(tensor.nbytes for tensor in filled)

    def _group(self, group: VertexStepGroup, shape: Shape) -> tuple[Any, ...]:
        csr, columns = group.csr, group.columns
        matrix = [self._pinned(part) for part in (csr.indptr, csr.indices, csr.values)]
        copies = [torch.empty_like(part, device=self.device) for part in matrix]
        staging = self._pinned(torch.empty(columns.numel(), shape.round_dims[0]))
        arrived = torch.empty_like(staging, device=self.device)
        outs = [
            torch.empty(columns.numel(), width, device=self.device)
            for width in shape.round_dims[1:]
        ]
        return columns, columns.to(self.device), staging, arrived, matrix, copies, outs

    def _run(self, group: TimeGroup, shape: Shape) -> tuple[Tensor, Tensor, Tensor]:
        size = group.rows.row_length * group.rows.num_rows
        rows = torch.empty(size, shape.spatial_dim, device=self.device)
        return group.steps.to(self.device), group.rows.place.to(self.device), rows

    def _pinned(self, tensor: Tensor) -> Tensor:
        return tensor.pin_memory() if self._cuda else tensor


def in_turns(work: Mapping[str, Loader], least: int, budget_s: float) -> dict[str, list[float]]:
    """Seconds of each load, contenders in turns, every second turn backwards, after two."""
    seconds: dict[str, list[float]] = {name: [] for name in work}
    names = list(work)
    begin, turn = time.perf_counter(), -2
    while turn < least or time.perf_counter() - begin < budget_s:
        for name in names if turn % 2 == 0 else reversed(names):
            start = time.perf_counter()
            work[name].load()
            if turn >= 0:
                seconds[name].append(time.perf_counter() - start)
        turn += 1
    return seconds


def dealt_out(
    workload: SequenceWorkload,
    data: SnapshotSequence,
    workers: int,
    device: str,
    *,
    rounds: int | None = None,
) -> WorkAssignment:
    """Our partition by chunks of so many workers, refined in so many rounds: labels propagated once
    make so many chunks that training them one by one takes minutes."""
    from dgbench.systems.dgc.dealing import deal
    from dgbench.systems.dgc.partition import ChunkSettings
    from dgbench.systems.dgc.settings_run import ChunkRankSettings

    settings = ChunkRankSettings(chunks=ChunkSettings(rounds=rounds))
    return deal(workload, data, workers, settings, device=device)


def plans_of(
    data: SnapshotSequence,
    dealt: WorkAssignment,
    *,
    norm: str,
    names: Sequence[str] = tuple(SETTINGS),
) -> dict[str, WorkerPlan]:
    """Plans of the worker with most vertex-steps, a recurrent model, by setting."""
    from dgbench.systems.dgc.plan import plan_worker

    fullest = int(dealt.placement.loads()[0].argmax())
    plans = {}
    for name in names:
        fusion, temporal = SETTINGS[name]
        plans[name] = plan_worker(
            data,
            dealt.graph,
            dealt.placement,
            fullest,
            attention=False,
            norm=norm,
            fusion=fusion,
            temporal=temporal,
            entries=dealt.entries,
        )
    return plans
