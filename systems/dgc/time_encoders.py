"""Forms of MPNN-LSTM's time encoder alone: padded, packed, and torch's PackedSequence."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from dgbench.lab.result_checks import ResultCheck, close
from dgbench.systems.base.conditioning import MIN_TOLERANCE
from dgbench.systems.base.race import relative
from dgbench.systems.dgc.sequence_oracle import close_to_exact

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence
    from dgbench.kernels_cuda.supergraph import Supergraph
    from dgbench.models.dtdg.mpnn_lstm_bare import MpnnLstmBare
    from dgbench.systems.base.sequences import SequenceWorkload
    from dgbench.systems.dgc.dealing import WorkAssignment
    from dgbench.systems.dgc.segments import TimeGroup

BY_CHUNK, PADDED, PACKED, TORCH = "padded by chunk", "padded", "packed", "PackedSequence"
CONTENDERS: Final = (BY_CHUNK, PADDED, PACKED, TORCH)
KINDS: Final = "outputs", "gradients"
BESIDE: Final = "form of another implementation"
_TEMPORAL: Final = {BY_CHUNK: "padded", PADDED: "packed_sequence", PACKED: "packed"}
"""`temporal` of a plan; that of PackedSequence is one row for each sequence, by falling length."""


@dataclass(frozen=True, slots=True)
class EncoderVariant:
    """One form of the encoder.

    Attributes:
        seconds: of each forward and backward pass.
        zeros: floats that it pads.
        deviation: from the padded form, the largest of outputs and gradients.
        checks: of both, after the timed passes, against float64 over padded sequences, or against
            `PackedSequence` (and that one against padded rows).
    """

    seconds: list[float]
    zeros: int
    deviation: float
    checks: list[ResultCheck]


def time_encoders(
    workload: SequenceWorkload,
    data: SnapshotSequence,
    dealt: WorkAssignment,
    device: str,
    least: int,
    budget_s: float,
    *,
    compare: bool = True,
) -> dict[str, EncoderVariant]:
    """All forms in turns over all sequences of a graph, as one worker has them.

    Args:
        workload, data, dealt: what is trained, and its vertex-steps.
        device: of the encoders.
        least, budget_s: turns at least, and seconds to go on for.
        compare: with float64, after the turns; else with torch's own operators.
    """
    from dgbench.systems.base.sequences import sequence_model
    from dgbench.systems.dgc.plan import plan_worker

    alone = torch.zeros_like(dealt.placement.structure)
    placement = replace(dealt.placement, workers=1, structure=alone, time=alone)
    model: MpnnLstmBare = sequence_model(workload).to(device)  # type: ignore[assignment]
    draw = torch.Generator().manual_seed(1)
    x = torch.rand(dealt.graph.num_vertices, model.spatial_dim, generator=draw).to(device)
    passes: dict[str, Callable[[Tensor], Tensor]] = {}
    zeros: dict[str, int] = {}
    for name, temporal in _TEMPORAL.items():
        plan = plan_worker(
            data, dealt.graph, placement, 0, attention=False, norm=workload.norm, fusion="whole",
            temporal=temporal, entries=dealt.entries,  # type: ignore[arg-type]
        )  # fmt: skip
        groups = [group for stage in plan.time.stages for group in stage.groups]
        passes[name] = _scan(model, groups, device)
        zeros[name] = plan.time.padding * model.spatial_dim
        if name == PADDED:
            passes[TORCH] = _torch(model, groups, device)
            zeros[TORCH] = 0
    seconds = _in_turns(model, {name: passes[name] for name in CONTENDERS}, x, least, budget_s)
    answers = {name: _answer(model, work, x) for name, work in passes.items()}

    def exact() -> dict[str, Tensor]:
        return dict(zip(KINDS, _exact(model, dealt.graph, x), strict=True))

    wanted = exact() if compare else {}

    def checks(name: str) -> list[ResultCheck]:
        beside = answers[PADDED if name == TORCH else TORCH]
        found = []
        for of, own, other in zip(KINDS, answers[name], beside, strict=True):
            check = close(of, own, other, MIN_TOLERANCE, against=BESIDE, system=name)
            if compare or not check.passed:
                known = wanted or exact()
                check = close_to_exact(
                    of, {"": own}, {"": known[of]}, lambda of=of: {"": exact()[of]}, system=name
                )
            found.append(check)
        return found

    return {
        name: EncoderVariant(
            seconds[name],
            zeros[name],
            max(relative(a, b) for a, b in zip(answers[name], answers[PADDED], strict=True)),
            checks(name),
        )
        for name in CONTENDERS
    }


def _scan(
    model: MpnnLstmBare, groups: Sequence[TimeGroup], device: str
) -> Callable[[Tensor], Tensor]:
    """The model's own scans over rows of every group."""
    parts = [
        (_SegmentRows(*(t.to(device) for t in (g.begins, g.rows.sequence, g.rows.position))),
         g.steps.to(device), g.rows.place.to(device))
        for g in groups
    ]  # fmt: skip

    def run(x: Tensor) -> Tensor:
        out = x.new_zeros(x.shape[0], model.output_dim)
        for rows, steps, place in parts:
            shape = rows.begins.shape
            filled = x.new_zeros(rows.begins.numel(), x.shape[1])
            filled = filled.index_copy(0, place, x.index_select(0, steps))
            made = model.temporal_fused(filled.view(*shape, -1), rows)[0]
            made = made.reshape(-1, made.shape[2]).index_select(0, place)
            out = out.index_copy(0, steps, made)
        return out

    return run


def _torch(
    model: MpnnLstmBare, groups: Sequence[TimeGroup], device: str
) -> Callable[[Tensor], Tensor]:
    """`torch.nn.LSTM` over a PackedSequence: step by step, only sequences that are still there."""
    if not groups:
        return lambda x: x.new_zeros(0, model.output_dim)
    (group,) = groups
    rows = group.rows  # by falling length: the sequences of a step are the first ones
    order = torch.argsort(rows.position_of_step * rows.num_rows + rows.sequence_of_step)
    steps = group.steps[order].to(device)
    sizes = torch.bincount(rows.position_of_step)  # stays on the CPU, as torch wants it

    def run(x: Tensor) -> Tensor:
        packed = PackedSequence(x.index_select(0, steps), sizes)
        packed = model.lstm_2(model.lstm_1(packed)[0])[0]
        out = x.new_zeros(x.shape[0], model.output_dim)
        return out.index_copy(0, steps, packed.data)

    return run


def _exact(model: MpnnLstmBare, graph: Supergraph, x: Tensor) -> tuple[Tensor, Tensor]:
    """Answers of torch's own LSTM in float64 on the CPU, a padded row for each entity."""
    lengths = graph.start.diff()
    lengths = lengths[lengths > 0]
    row = torch.repeat_interleave(torch.arange(lengths.numel()), lengths)
    step = torch.arange(row.numel()) - (lengths.cumsum(0) - lengths)[row]
    exact = copy.deepcopy(model).to("cpu", torch.float64)

    def run(of: Tensor) -> Tensor:
        padded = of.new_zeros(int(lengths.max()), lengths.numel(), of.shape[1])
        padded = padded.index_put((step, row), of)
        return exact.lstm_2(exact.lstm_1(padded)[0])[0][step, row]

    return _answer(exact, run, x.detach().to("cpu", torch.float64))


@dataclass(frozen=True, slots=True)
class _SegmentRows:
    begins: Tensor
    sequence: Tensor
    position: Tensor


def _answer(
    model: MpnnLstmBare, work: Callable[[Tensor], Tensor], x: Tensor
) -> tuple[Tensor, Tensor]:
    """Outputs, and the gradients of the input and all parameters as one vector."""
    leaf = x.clone().requires_grad_()
    out = work(leaf)
    wanted = [leaf, *model.lstm_1.parameters(), *model.lstm_2.parameters()]
    weight = torch.linspace(0.5, 1.5, out.numel(), device=out.device).view_as(out)
    grads = torch.autograd.grad((out * weight).sum(), wanted)
    return out.detach(), torch.cat([g.flatten() for g in grads])


def _in_turns(
    model: MpnnLstmBare,
    passes: Mapping[str, Callable[[Tensor], Tensor]],
    x: Tensor,
    least: int,
    budget_s: float,
) -> dict[str, list[float]]:
    """Seconds of each pass, every second turn backwards, after one that warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in passes}
    names = list(passes)
    begin, turn = time.perf_counter(), -1
    while turn < least or time.perf_counter() - begin < budget_s:
        for name in names if turn % 2 == 0 else reversed(names):
            start = time.perf_counter()
            _answer(model, passes[name], x)
            if x.device.type == "cuda":
                torch.cuda.synchronize(x.device)
            if turn >= 0:
                seconds[name].append(time.perf_counter() - start)
        turn += 1
    return seconds
