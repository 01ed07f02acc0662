"""PiPAD as a plugin: its switches and its trainer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from dgbench.runtime.errors import InvalidInputError, UnsupportedError
from dgbench.runtime.meter import Meter
from dgbench.systems.base import System, Technique, Trainer, Workload
from dgbench.systems.base import data as workload_data
from dgbench.systems.base.training import FrameTrainer
from dgbench.systems.pipad.engine import Engine
from dgbench.systems.pipad.forward import FORWARD
from dgbench.systems.pipad.partitions import Partitions

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence

S_PER: Final = 8
"""Snapshots of a partition: the largest of the paper's options, as far as the frame allows."""


class PipadTrainer(FrameTrainer):
    """Trains with all graph work of a frame first, over partitions, then the recurrence."""

    def __init__(
        self,
        workload: Workload,
        data: SnapshotSequence,
        switches: dict[str, bool],
        *,
        s_per: int = S_PER,
        device: str = "cpu",
        meter: Meter | None = None,
    ) -> None:
        super().__init__(workload, data, device=device, meter=meter)
        partitions = Partitions(
            data,
            norm=workload.norm,
            device=str(self.device),
            sliced=switches["sliced_csr"],
            overlap=switches["overlap"],
            granularity="slice" if switches["whole_slices"] else "edge",
        )
        self.engine = Engine(partitions, switches, min(s_per, workload.frame), self.meter)

    def prepare(self) -> None:
        """The preparing epochs (4.3): extract, and aggregate raw features once where reused."""
        self.engine.prepare()

    def outputs(self, times: range) -> Sequence[Tensor] | Tensor:
        forward = FORWARD[type(self.model)]
        return forward(self.model, self.engine, times, self.task.every)


class PipadSystem(System):
    """PiPAD (PPoPP 2023): pipelined and parallel training of dynamic GNNs on one device.

    Args:
        s_per: snapshots of a partition, at most 32.
    """

    name = "pipad"
    title = "PiPAD"
    kind = "paper"
    about = (
        "Trains on several snapshots of a sliding frame at once: their shared topology is read "
        "once, their features lie side by side, and the first layer's aggregation is kept from "
        "frame to frame."
    )
    provenance = "re-implemented from the paper (PPoPP 2023)"
    colour = "#3A8EF0"
    marker = "o"
    techniques = (
        Technique("reuse", "keep the first layer's aggregation across frames and epochs",
                  True, "PiPAD 3.3, 4.4"),
        Technique("overlap", "move the topology that a partition shares only once",
                  True, "PiPAD 4.1"),
        Technique("sliced_csr", "store adjacency rows in slices of at most 32 entries",
                  True, "PiPAD 4.1"),
        Technique("parallel_aggregation",
                  "aggregate all snapshots of a partition in one pass over coalescent features",
                  True, "PiPAD 4.2"),
        Technique("dimension_aware",
                  "merge snapshots only where rows are narrow; wide rows go one snapshot at a time",
                  True, "PiPAD 4.2, on the CPU by cache lines"),
        Technique("weight_reuse", "one product for all snapshots and gates that share a weight",
                  True, "PiPAD 4.2"),
        Technique("fused_gates",
                  "run the recurrence of a frame as one operator; stands for grouping the kernels "
                  "outside the graph layers",
                  True, "PiPAD 4.3 uses CUDA graphs; fusing is ours"),
        Technique("slice_coalescing",
                  "aggregate partitions with the paper's kernel: slices, thread groups, atomic "
                  "sums; unweighted graphs only, and slow on a CPU",
                  True, "PiPAD 4.2, Algorithm 1", default=False),
        Technique("whole_slices",
                  "count only identical whole slices as shared (the other reading of extraction)",
                  True, "PiPAD 4.1", default=False),
    )  # fmt: skip

    def __init__(self, s_per: int = S_PER) -> None:
        if not 1 <= s_per <= 32:
            raise InvalidInputError(f"s_per must be in 1..32, got {s_per}")
        self.s_per = s_per

    def unsupported(self, workload: Workload, device: str) -> list[str]:
        reasons = []
        if torch.device(device).type == "cuda":
            if not torch.cuda.is_available():
                reasons.append("there is no CUDA device here")
            else:
                from dgbench.kernels_cuda.build_info import build_info

                cuda = build_info()["cuda"]
                if not cuda["built"]:
                    reasons.append(f"the CUDA operators are not built: {cuda['reason']}")
        return reasons

    def open(
        self,
        workload: Workload,
        *,
        device: str = "cpu",
        switches: Mapping[str, bool] | None = None,
        meter: Meter | None = None,
    ) -> Trainer:
        chosen = self.switches(switches)
        data = workload_data.load(workload)
        return PipadTrainer(workload, data, chosen, s_per=self.s_per, device=device, meter=meter)

    def calibrate(
        self,
        path: Path,
        *,
        device: str = "cpu",
        quick: bool = False,
        progress: Callable[[int, int, str], None] | None = None,
    ) -> dict[str, Any]:
        """Measure the tuner's table of gains (4.4, Figure 9) on this machine."""
        reasons = self.unsupported(Workload(dataset="hepth", model="tgcn_model"), device)
        if reasons:
            raise UnsupportedError(f"{self.title}: {'; '.join(reasons)}")
        from dgbench.systems.pipad.gains import calibrate

        return calibrate(path, device=device, quick=quick, progress=progress)
