"""torch.compile over the reference: the baseline that a user gets without writing a kernel."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import sysconfig
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dgbench.runtime.readback import Readback
from dgbench.systems.base import Workload
from dgbench.systems.reference.system import EdgeListAggregator, ReferenceSystem, ReferenceTrainer

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence

RECORDING_STEPS = 3
"""Steps before a CUDA graph is replayed: one compiles, one warms up and one records."""


class TensorAggregator:
    """A-hat of a frame's snapshots as padded edge lists, traced by torch.compile.

    Args:
        features: [W, N, F].
        edges: int64[W, 2, E], source and destination.
        coefficient: [W, E], 0 where an edge is padding.
    """

    def __init__(self, features: Tensor, edges: Tensor, coefficient: Tensor) -> None:
        self._features, self._edges, self._coefficient = features, edges, coefficient

    def raw(self, t: int) -> Tensor:
        return self._features[t]

    def first(self, t: int) -> Tensor:
        return self.apply(t, self.raw(t))

    def apply(self, t: int, h: Tensor) -> Tensor:
        message = h.index_select(0, self._edges[t, 0]) * self._coefficient[t][:, None]
        return torch.zeros_like(h).index_add(0, self._edges[t, 1], message)


class CompiledTrainer(ReferenceTrainer):
    """The reference's frames, forward and backward, as one graph of torch.compile.

    Normalised edge lists of all snapshots stay on the device, padded to the longest, so that all
    frames have one shape and none is compiled again. On CUDA the mode is `reduce-overhead`, which
    replays CUDA graphs; elsewhere it is inductor's default.

    Attributes:
        compile_s: seconds from the first trace to the last recorded graph.
        padding: share of the padded edge lists that is no edge.
    """

    def __init__(self, workload: Workload, data: SnapshotSequence, **options: Any) -> None:
        super().__init__(workload, data, **options)
        self.compile_s = self.padding = 0.0
        self._graphs = 0
        self._arrays: tuple[Tensor, Tensor, Tensor] | None = None
        mode = "reduce-overhead" if self.device.type == "cuda" else None
        self._compiled: Callable[..., Any] = torch.compile(
            self._frame, fullgraph=True, dynamic=False, mode=mode
        )

    def prepare(self) -> None:
        """Normalise and pad all snapshots, then compile both passes on the first frame.

        What torch compiled before in this process is forgotten: it keeps few versions of code.
        """
        torch.compiler.reset()
        self._arrays = self._padded(range(len(self.data)))
        start = time.perf_counter()
        with _quiet_compiler(), _counted(self):
            for _ in range(RECORDING_STEPS if self.device.type == "cuda" else 1):
                super().gradients(0)
        self.compile_s = time.perf_counter() - start
        self._graphs, graphs = 0, self._graphs
        self.notes.append(
            f"compiled {graphs} graph{'s' * (graphs != 1)} in {self.compile_s:.2g} s of the "
            "preparation (torch keeps compiled code on disk, so a later process takes less); "
            f"{100 * self.padding:.0f} % of its edges are padding"
        )

    def outputs(self, times: range) -> Sequence[Tensor]:
        with self.meter.phase("compute"):
            return self._call(times, None)

    def _loss(self, frame: int) -> Tensor:
        targets = self.task.targets(frame)
        if targets is None:  # as many pairs as a snapshot has edges: their loss stays eager
            return super()._loss(frame)
        with self.meter.phase("compute"):
            return self._call(self.task.times(frame), targets)[0]

    def evaluate(self, frame: int) -> Tensor:
        """Hidden output of the last snapshot, by the graph that is trained."""
        targets = self.task.targets(frame)
        out = self._call(self.task.times(frame), targets)
        return out[-1].detach().cpu().clone()

    def enqueue(self, frame: int) -> Readback:
        with _counted(self):
            loss = super().enqueue(frame)
        self.meter.count("recompilations", self._graphs)
        self._graphs = 0
        return loss

    def report(self) -> dict[str, float]:
        return {"compile_time": self.compile_s, "empty_share": self.padding}

    def close(self) -> None:
        super().close()
        self._arrays = None

    def _call(self, times: range, targets: Tensor | None) -> Sequence[Tensor]:
        if self._arrays is None:
            self.prepare()
        assert self._arrays is not None
        span = slice(times.start, times.stop)
        if self.device.type == "cuda":
            torch.compiler.cudagraph_mark_step_begin()
        return self._compiled(*(of[span].contiguous() for of in self._arrays), targets)

    def _frame(
        self, features: Tensor, edges: Tensor, coefficient: Tensor, targets: Tensor | None
    ) -> Sequence[Tensor]:
        """Loss and last output of a node task's frame; without targets all outputs."""
        aggregator = TensorAggregator(features, edges, coefficient)
        outputs = self.model.forward_frame(aggregator, range(features.shape[0]))
        if targets is None:
            return outputs
        head = self.model.head
        if self.task.every:
            losses = [head.loss(h, y) for h, y in zip(outputs, targets.unbind(0), strict=True)]
            return torch.stack(losses).mean(), outputs[-1].detach()
        return head.loss(outputs[-1], targets[-1]), outputs[-1].detach()

    def _padded(self, times: range) -> tuple[Tensor, Tensor, Tensor]:
        """Features [T, N, F], edges int64[T, 2, E] and coefficients [T, E] of these snapshots."""
        aggregator: EdgeListAggregator = self.aggregator
        lists = [aggregator.normalised(t) for t in times]
        longest = max(coefficient.numel() for _, coefficient in lists)
        # Spread over all rows: on one row, padding would wait for itself.
        spare = torch.arange(longest, device=self.device) % self.data.num_nodes
        edges = spare.repeat(len(lists), 2, 1)
        coefficient = torch.zeros(len(lists), longest, dtype=self.dtype, device=self.device)
        for i, (pairs, values) in enumerate(lists):
            edges[i, :, : values.numel()] = pairs
            coefficient[i, : values.numel()] = values
        used = sum(values.numel() for _, values in lists)
        self.padding = 1 - used / coefficient.numel()
        features = torch.stack([aggregator.raw(t) for t in times])
        return features, edges, coefficient


@contextlib.contextmanager
def _counted(trainer: CompiledTrainer) -> Iterator[None]:
    """Add the graphs that torch compiles inside to the trainer's count."""
    from torch._dynamo.utils import counters

    before = counters["stats"]["unique_graphs"]
    yield
    trainer._graphs += counters["stats"]["unique_graphs"] - before


@contextlib.contextmanager
def _quiet_compiler() -> Iterator[None]:
    """A compiler without warnings that traces LSTMs step by step, which is off by default.

    On a machine without a device inductor also starts no worker processes.
    """
    from torch._dynamo import config as tracer
    from torch._inductor import config

    here = {} if torch.cuda.is_available() else {"compile_threads": 1}
    traced = {"allow_rnn": True} if hasattr(tracer, "allow_rnn") else {}
    with warnings.catch_warnings(), config.patch(here), tracer.patch(traced):
        warnings.simplefilter("ignore")
        yield


def lacking(device: str) -> str:
    """Reason why torch.compile cannot run on `device`, as a sentence, or ""."""
    if not hasattr(torch, "compile"):
        return f"torch {torch.__version__} has no torch.compile"
    compiler = os.environ.get("CXX", "g++").split()[0]
    if shutil.which(compiler) is None:
        return f"torch.compile needs a C++ compiler and '{compiler}' is not there"
    if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        return "torch.compile needs Python.h, which is not installed"
    if torch.device(device).type == "cuda" and importlib.util.find_spec("triton") is None:
        return "torch.compile needs triton on a CUDA device and it is not installed"
    return ""


class CompiledSystem(ReferenceSystem):
    """The reference through torch.compile; CUDA graphs on a device."""

    name = "compiled"
    title = "torch.compile"
    kind = "baseline"
    about = (
        "torch.compile over the reference: forward and backward of a frame as one graph, edge "
        "lists normalised once and padded to one length; CUDA graphs on a device (mode "
        "'reduce-overhead'), inductor's default on a CPU."
    )
    provenance = f"torch.compile of torch {torch.__version__} over the reference"
    code = "dgbench"
    trainer = CompiledTrainer

    def unsupported(self, workload: Workload, device: str) -> list[str]:
        reasons = super().unsupported(workload, device)
        return reasons or [reason for reason in (lacking(device),) if reason]
