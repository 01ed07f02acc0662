"""PiPAD as a plugin: its switches and its trainer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import torch
from torch import Tensor

from dgbench.runtime.errors import InvalidInputError, UnsupportedError
from dgbench.runtime.meter import Meter
from dgbench.runtime.readback import Readback
from dgbench.runtime.transfer import open_link
from dgbench.systems.base import System, Technique, Trainer, Workload
from dgbench.systems.base import data as workload_data
from dgbench.systems.base.moments import AdamMoments
from dgbench.systems.base.system import FrameResult
from dgbench.systems.base.training import FrameTrainer
from dgbench.systems.pipad.compiled import CompiledStep, compiled_step, reason_against
from dgbench.systems.pipad.controller import Controller, TrainingPhase
from dgbench.systems.pipad.device_engine import EXTRA_SLOTS, DeviceEngine
from dgbench.systems.pipad.engine import Engine
from dgbench.systems.pipad.forward import FORWARD, Stages
from dgbench.systems.pipad.kernels import placed_kernel
from dgbench.systems.pipad.ladders import BARE, PUBLISHED, stage
from dgbench.systems.pipad.partitions import Partitions
from dgbench.systems.pipad.recorded import RecordedSteps

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence

S_PER: Final = 8
"""Snapshots of a partition where the tuner is off: the largest of the paper's options."""

CAPS: Final = (8, 16, 32, 64)
"""Entries of a slice at most that the study of slice sizes looks at; the paper's is 32."""


class PipadTrainer(FrameTrainer):
    """Trains with all graph work of a frame first, over partitions, then the recurrence.

    Training goes through the preparing epochs (4.3) unless `prepare` is called: the first two
    epochs run a snapshot at a time, then the tuner decides and the decisions stay. Losses are the
    same either way.

    Args:
        s_per: snapshots of a partition for all frames, or None for the tuner's choice.
        slice_cap: entries of a slice at most.
        buffer_bytes: limit of the device's buffer of aggregation results instead of free memory.
    """

    def __init__(
        self,
        workload: Workload,
        data: SnapshotSequence,
        switches: dict[str, bool],
        *,
        s_per: int | None = None,
        slice_cap: int = 32,
        buffer_bytes: int | None = None,
        device: str = "cpu",
        meter: Meter | None = None,
    ) -> None:
        super().__init__(workload, data, device=device, meter=meter)
        frames = [self.task.times(i) for i in range(self.num_frames)]
        after = {a.start: b for a, b in zip(frames, [*frames[1:], *frames[:1]], strict=True)}
        partitions = Partitions(
            data,
            norm=workload.norm,
            sliced=switches["sliced_csr"],
            overlap=switches["overlap"],
            granularity="slice" if switches["whole_slices"] else "edge",
            cap=slice_cap,
        )
        layers = workload.model != "tgcn_model"
        settings = {
            "s_per": min(s_per or S_PER, workload.frame),
            "following": lambda times: after.get(times.start),
            "uses_raw": workload.model == "mpnn_lstm",
        }
        if self.device.type == "cpu" and not switches["arena"]:
            self.engine = Engine(partitions, switches, self.meter, **settings)
        else:
            link = open_link(
                self.device,
                self.meter,
                asynchronous=switches["pipeline"],
                arena=switches["arena"],
                slots=workload.frame + EXTRA_SLOTS,
            )
            self.engine = DeviceEngine(
                partitions,
                switches,
                self.meter,
                link=link,
                device=self.device,
                norm=workload.norm,
                layers=layers,
                **settings,
            )
        self.compiled: CompiledStep | None = None
        self.recorded: RecordedSteps | None = None
        self._records = False
        width, reason = workload.hidden_dim if layers else 0, ""
        if switches["compiled_step"]:
            reason = reason_against(workload, self.model, self.engine, switches)
            self._records = not reason and self.device.type == "cuda"
            if not reason and not self._records:
                self.compiled = compiled_step(workload, self.model, self.engine, self.task)
                self.engine.kernel = placed_kernel(switches, slice_cap, compiled=True)
                width = self.compiled.width(self.model)
        # What is captured whole is not captured in parts.
        parts = switches["cuda_graphs"] and self.device.type == "cuda" and not self._records
        self.stages = Stages(self.model, parts)
        widths = () if switches["reuse"] else (workload.feature_dim,)
        self.controller = Controller(
            self.engine,
            frames,
            stride=workload.stride,
            widths=widths + ((width,) if width else ()),
            sends_topology=layers or not switches["reuse"],
            probe=super().gradients,  # operator by operator: what it keeps is counted, too
            tune=switches["tuner"] and switches["parallel_aggregation"] and s_per is None,
            buffer_bytes=buffer_bytes,
        )
        self._remarks = self._about(switches)
        if reason:
            self._remarks.append(f"Steps are not one compiled call each: {reason}.")

    @property
    def notes(self) -> list[str]:
        """Notes of a row: the tuner's reasons, and switches without effect here."""
        recorded = [self.recorded.note()] if self.recorded and self.recorded.note() else []
        about = [*self.controller.notes, *self._remarks, *recorded]
        return [*self._notes, *about, *self.stages.reasons()]

    @notes.setter
    def notes(self, given: list[str]) -> None:
        self._notes = given

    def prepare(self) -> None:
        """End preparation at once: profile, extract, aggregate once, decide (4.3, 4.4)."""
        self.controller.prepare()
        self._record()

    def _record(self) -> None:
        """Record the steps of a device, once preparation is over."""
        if not self._records or self.recorded is not None or not self.num_frames:
            return
        if self.controller.phase is TrainingPhase.STEADY:
            optimiser = self.optimiser(capturable=True)
            self.recorded = RecordedSteps(
                self.engine, self._loss, list(self.trained().values()), optimiser,
                self.controller.frames, self.meter,
            )  # fmt: skip

    def enqueue(self, frame: int) -> Readback:
        self.controller.begin_step()
        self._record()
        if self.recorded is not None and (loss := self.recorded.run(frame)) is not None:
            return loss
        if self._records:
            self.optimiser(capturable=True)
        self.engine.in_order = True
        start = time.perf_counter()
        try:
            loss = super().enqueue(frame) if self.compiled is None else self._compiled(frame)
            if self.controller.phase is TrainingPhase.PREPARING and self.device.type == "cuda":
                torch.cuda.synchronize(self.device)  # the tuner is told how long a step takes
        finally:
            self.engine.in_order = False
            self.engine.finish()
        self.controller.end_step(frame, time.perf_counter() - start)
        return loss

    def _compiled(self, frame: int) -> Readback:
        with self.meter.phase("compute"):
            return Readback(self.compiled.run(frame))

    def moments(self) -> dict[str, AdamMoments]:
        return super().moments() if self.compiled is None else self.compiled.moments()

    def gradients(self, frame: int) -> dict[str, Tensor]:
        if self.compiled is None:
            return super().gradients(frame)
        self.compiled.run(frame, update=False)
        return self.compiled.gradients()

    def result(self, frame: int) -> FrameResult:
        if self.compiled is None:
            return super().result(frame)
        output = torch.empty(self.data.num_nodes, self.model.output_dim)
        loss = self.compiled.run(frame, update=False, output=output)
        return FrameResult(output, self.compiled.gradients(), loss)

    def outputs(self, times: range) -> Sequence[Tensor] | Tensor:
        forward = FORWARD[type(self.model)]
        return forward(self.model, self.engine, self.stages, times, self.task.every)

    def report(self) -> dict[str, float]:
        return self.controller.report()

    def close(self) -> None:
        self.controller.close()
        self.recorded = None
        self.engine.close()
        super().close()

    def _about(self, switches: Mapping[str, bool]) -> list[str]:
        found = []
        if not self.engine.copies:
            found.append(
                "Nothing is copied on this CPU: transfers are counted, and the pipeline, the "
                "device buffer and resident topology change counters only."
            )
        if switches["cuda_graphs"] and self.device.type != "cuda":
            found.append("CUDA graphs have no effect on a CPU.")
        return found


class PipadSystem(System):
    """PiPAD (PPoPP 2023): pipelined and parallel training of dynamic GNNs on one device.

    Args:
        s_per: snapshots of a partition for all frames, at most 32; None lets the tuner choose, or
            takes 8 with the tuner off.
        slice_cap: entries of a slice at most: 8, 16, 32 or 64.
        buffer_bytes: limit of the buffer of aggregation results that stays on the device; None is
            what memory allows.
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
    enters = ("snapshot-training@1",)
    forms: ClassVar[Mapping[str, Mapping[str, bool]]] = {
        name: stage(name) for name in (BARE, PUBLISHED)
    }
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
        Technique("cache_rule",
                  "on a CPU merge snapshots only where their rows or features fit its caches; no "
                  "effect on a device, which merges every partition as the paper does",
                  True, "ours, against PiPAD 4.2", ours=True),
        Technique("weight_reuse", "one product for all snapshots and gates that share a weight",
                  True, "PiPAD 4.2"),
        Technique("fused_gates",
                  "run the recurrence of a frame as one operator; stands for grouping the kernels "
                  "outside the graph layers",
                  True, "ours, PiPAD 4.3 uses CUDA graphs", ours=True),
        Technique("compiled_step",
                  "train on a frame in one call: on a CPU compiled, with forward, loss, backward "
                  "and update, the node head folded into the last layer; on a device one CUDA "
                  "graph, with transfers",
                  True, "added: the paper runs operators one by one", ours=True),
        Technique("pipeline",
                  "send the next partition while this one is computed, double-buffered",
                  True, "PiPAD 4.3"),
        Technique("device_buffer",
                  "keep on the device the aggregation results that the next frame uses first",
                  True, "PiPAD 4.4"),
        Technique("tuner",
                  "choose the snapshots of a partition for each frame from profiles and a table of "
                  "kernel gains; off, they are 8",
                  True, "PiPAD 4.4"),
        Technique("cuda_graphs",
                  "capture the dense parts of a step in CUDA graphs; no effect on a CPU",
                  True, "PiPAD 4.3"),
        Technique("vector_loads",
                  "let the paper's kernel load two or four floats a lane (with slice_coalescing)",
                  True, "PiPAD 4.2"),
        Technique("slice_coalescing",
                  "aggregate with the paper's kernel: slices of coalescent rows, on a device "
                  "thread groups and atomic sums; off, a product of ours writes each row once",
                  True, "PiPAD 4.2, Algorithm 1", default=False),
        Technique("whole_slices",
                  "count only identical whole slices as shared (the other reading of extraction)",
                  True, "PiPAD 4.1", default=False),
        Technique("arena",
                  "copy what a device would be sent into memory of its own; CPU only",
                  True, "dgbench: stand-in for a device", default=False, ours=True),
        Technique("resident",
                  "keep topology on the device once it was sent, in up to half of the free memory",
                  True, "added: PiPAD 4.3 sends it every time", default=False, ours=True),
    )  # fmt: skip

    def __init__(
        self,
        s_per: int | None = None,
        slice_cap: int = 32,
        buffer_bytes: int | None = None,
    ) -> None:
        if s_per is not None and not 1 <= s_per <= 32:
            raise InvalidInputError(f"s_per must be in 1..32, got {s_per}")
        if slice_cap not in CAPS:
            allowed = ", ".join(map(str, CAPS))
            raise InvalidInputError(f"slice_cap must be one of {allowed}, got {slice_cap}")
        if buffer_bytes is not None and buffer_bytes < 0:
            raise InvalidInputError(f"buffer_bytes must be 0 or more, got {buffer_bytes}")
        self.s_per = s_per
        self.slice_cap = slice_cap
        self.buffer_bytes = buffer_bytes

    def unsupported(self, workload: Workload, device: str) -> list[str]:
        reasons = super().unsupported(workload, device)
        if torch.device(device).type == "cuda" and not reasons:
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
        s_per: int | None = None,
    ) -> Trainer:
        chosen = self.switches(switches)
        if chosen["arena"] and torch.device(device).type != "cpu":
            raise InvalidInputError(
                f"the technique 'arena' stands for a device on a CPU, the device is '{device}'",
                hint="leave 'arena' off where copies are real",
            )
        return PipadTrainer(
            workload,
            workload_data.load(workload),
            chosen,
            s_per=self.s_per if s_per is None else s_per,
            slice_cap=self.slice_cap,
            buffer_bytes=self.buffer_bytes,
            device=device,
            meter=meter,
        )

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
