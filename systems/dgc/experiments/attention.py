"""Attention over the steps of sequences: DGC's packed rows beside torch's own operators."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, ClassVar, Final

import torch
from torch import Tensor
from torch.nn import functional

from dgbench.kernels_cuda.attention import packed_attention
from dgbench.lab.charts import chart, failed, failures
from dgbench.lab.compare import ratio
from dgbench.lab.grid import Grid
from dgbench.lab.result_checks import ResultCheck, close, deviations
from dgbench.lab.table import Table
from dgbench.models.attention import plain_packed_attention
from dgbench.runtime.errors import UnsupportedError
from dgbench.runtime.steady import measure_steady
from dgbench.runtime.touched import comparing
from dgbench.systems.base import Cell, Contender, FigureSpec, Measurement, RunContext
from dgbench.systems.base.conditioning import MIN_TOLERANCE as TOLERANCE
from dgbench.systems.dgc.sequence_oracle import AGAINST, close_to_exact

NAME: Final = "attention"
OURS: Final = "dgc"
MASK, ZEROS, NESTED, VARLEN = "SDPA, mask", "SDPA, zeros", "SDPA, nested", "varlen_attn"
TITLES: Final = {VARLEN: "Flash attention, varlen"}
"""Of contenders that rows call by the name of a function."""
HALF_TOLERANCE: Final = 1e-2
"""For contenders that know no float32: bfloat16 keeps eight bits. Inputs are rounded alike."""
DRAWN: Final = 16
"""Sequences that processes after the first compare."""
CONTROL_S: Final = 0.6
"""Seconds of passes of ours at least. The A/A control is one of its cells, and a run's noise floor
is taken from it; a tenth of a second of passes told two processes of one thing 35 % apart."""
ROUNDS: Final = {"smoke": 2, None: 7}


@dataclass(frozen=True, slots=True)
class SequenceCase:
    """Sequences with exponentially distributed lengths, packed into rows of `longest` steps."""

    name: str
    sequences: int
    mean: float
    longest: int
    heads: int
    width: int


CASES: Final = (
    SequenceCase("mean 4 of 16 steps", 3000, 4, 16, 1, 32),
    SequenceCase("mean 60 of 120 steps, 4 heads", 250, 60, 120, 4, 8),
    SequenceCase("mean 10 of 60 steps", 6000, 10, 60, 1, 32),
    SequenceCase("mean 60 of 120 steps", 1000, 60, 120, 1, 32),
)
BY_NAME: Final = {case.name: case for case in CASES}


@dataclass(frozen=True, slots=True, eq=False)
class AttentionSteps:
    """Steps of one case.

    Attributes:
        case: what they are drawn for.
        lengths: int64[K] of the sequences.
        steps: queries, keys, values and the output's gradient, [S, heads * width] each, sequence
            by sequence.
        sequence: int64[T, N], which sequence stands at a step of a packed row, -1 for none.
        place: int64[S], where a step stands in the flat packed rows.
    """

    case: SequenceCase
    lengths: Tensor
    steps: tuple[Tensor, ...]
    sequence: Tensor
    place: Tensor

    @property
    def offsets(self) -> Tensor:
        """int64[K + 1], where each sequence begins among the steps."""
        return functional.pad(self.lengths.cumsum(0), (1, 0))


def draw_steps(case: SequenceCase, device: str = "cpu") -> AttentionSteps:
    """Seeded lengths and values; sequences are packed next fit, in their order."""
    draw = torch.Generator().manual_seed(7)
    drawn = torch.empty(case.sequences).exponential_(1 / case.mean, generator=draw)
    lengths = (1 + drawn.long()).clamp(max=case.longest)
    row, begin, rows = 0, 0, []
    for length in lengths.tolist():
        if begin + length > case.longest:
            row, begin = row + 1, 0
        rows.append((row, begin))
        begin += length
    number = torch.repeat_interleave(torch.arange(case.sequences), lengths)
    first = lengths.cumsum(0) - lengths
    at = torch.tensor(rows)[number]
    position = at[:, 1] + torch.arange(number.numel()) - first[number]
    place = position * (row + 1) + at[:, 0]
    sequence = torch.full((case.longest * (row + 1),), -1)
    sequence[place] = number
    shape = number.numel(), case.heads * case.width
    steps = tuple(torch.randn(shape, generator=draw).to(device) for _ in range(4))
    return AttentionSteps(
        case, lengths.to(device), steps, sequence.view(case.longest, -1).to(device),
        place.to(device),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class AttentionContender:
    """A way to attend, with inputs in its own layout; making the layout is not timed.

    Attributes:
        run: queries, keys and values to outputs.
        inputs: queries, keys, values and the output's gradient in its layout.
        steps: a tensor of its layout back to [S, heads * width].
        tolerance: largest relative deviation from float64.
    """

    run: Callable[..., Tensor]
    inputs: tuple[Tensor, ...]
    steps: Callable[[Tensor], Tensor]
    tolerance: float = TOLERANCE

    def passes(self) -> list[Tensor]:
        """The output and the gradients of queries, keys and values."""
        *leaves, grad = (t.detach() for t in self.inputs)
        for leaf in leaves:
            leaf.requires_grad_()
        out = self.run(*leaves)
        return [out.detach(), *torch.autograd.grad(out, leaves, grad)]


def packed_rows(packed: AttentionSteps) -> AttentionContender:
    """Ours: rows that hold several sequences."""
    return _spread(packed, packed_attention, packed.sequence, packed.place)


def masked_rows(packed: AttentionSteps) -> AttentionContender:
    """The same rows by torch, other sequences of a row hidden by a block-diagonal mask."""
    return _spread(packed, plain_packed_attention, packed.sequence, packed.place)


def padded_rows(packed: AttentionSteps) -> AttentionContender:
    """A row of the longest length for each sequence, by torch; a mask hides what is behind it."""
    count = packed.lengths.numel()
    device = packed.lengths.device
    number = torch.repeat_interleave(torch.arange(count, device=device), packed.lengths)
    step = torch.arange(number.numel(), device=device) - packed.offsets[number]
    steps = torch.arange(packed.case.longest, device=device).unsqueeze(1)
    owner = torch.where(steps < packed.lengths, torch.arange(count, device=device), -1)
    return _spread(packed, plain_packed_attention, owner, step * count + number)


def _spread(
    packed: AttentionSteps, attend: Callable[..., Tensor], owner: Tensor, place: Tensor
) -> AttentionContender:
    def spread(of: Tensor) -> Tensor:
        flat = of.new_zeros(owner.numel(), of.shape[1]).index_copy(0, place, of)
        return flat.view(*owner.shape, -1)

    return AttentionContender(
        lambda q, k, v: attend(q, k, v, owner, heads=packed.case.heads),
        tuple(spread(of) for of in packed.steps),
        lambda t: t.flatten(0, 1).index_select(0, place),
    )


def nested_rows(packed: AttentionSteps) -> AttentionContender:
    """Jagged nested tensors, one sequence after another without padding."""
    make = getattr(torch.nested, "nested_tensor_from_jagged", None)
    if make is None:
        raise UnsupportedError(f"torch {torch.__version__} has no jagged nested tensors")
    offsets, case = packed.offsets, packed.case

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        heads = [make(t, offsets, max_seqlen=case.longest).transpose(1, 2) for t in (q, k, v)]
        return functional.scaled_dot_product_attention(*heads).transpose(1, 2).values()

    return AttentionContender(run, _by_head(packed, torch.float32), lambda t: t.flatten(1))


def varlen_rows(packed: AttentionSteps) -> AttentionContender:
    """torch.nn.attention.varlen: flash attention over sequences of given offsets, in bfloat16."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        raise UnsupportedError(
            f"torch {torch.__version__} has no torch.nn.attention.varlen"
        ) from None
    if packed.lengths.device.type != "cuda":
        raise UnsupportedError("torch.nn.attention.varlen needs a CUDA device")
    offsets, longest = packed.offsets.int(), int(packed.lengths.max())
    return AttentionContender(
        lambda q, k, v: varlen_attn(q, k, v, offsets, offsets, longest, longest),
        _by_head(packed, torch.bfloat16),
        lambda t: t.flatten(1),
        HALF_TOLERANCE,
    )


def _by_head(packed: AttentionSteps, dtype: torch.dtype) -> tuple[Tensor, ...]:
    case = packed.case
    return tuple(t.view(-1, case.heads, case.width).to(dtype) for t in packed.steps)


CONTENDERS: Final[dict[str, Callable[[AttentionSteps], AttentionContender]]] = {
    OURS: packed_rows,
    MASK: masked_rows,
    ZEROS: padded_rows,
    NESTED: nested_rows,
    VARLEN: varlen_rows,
}


def exact_passes(
    packed: AttentionSteps,
    dtype: torch.dtype = torch.float32,
    chosen: Sequence[int] | None = None,
) -> list[Tensor]:
    """Output and gradients in float64 on the CPU, sequence by sequence, [S, heads * width].

    Args:
        packed: the case.
        dtype: that inputs are rounded to before.
        chosen: which sequences, in order; None: all. No other has a part in their results.
    """
    case, lengths = packed.case, packed.lengths.cpu()
    if chosen is not None:
        lengths = lengths[list(chosen)]
    rows = steps_of(packed, chosen)
    q, k, v, grad = (t.detach().cpu()[rows].to(dtype).double() for t in packed.steps)
    leaves = [t.requires_grad_() for t in (q, k, v)]
    parts = []
    for part in zip(*(t.split(lengths.tolist()) for t in leaves), strict=True):
        heads = [t.view(-1, case.heads, case.width).transpose(0, 1) for t in part]
        scores = heads[0] @ heads[1].transpose(1, 2) / case.width**0.5
        parts.append((scores.softmax(-1) @ heads[2]).transpose(0, 1).flatten(1))
    out = torch.cat(parts)
    return [out.detach(), *torch.autograd.grad(out, leaves, grad)]


def steps_of(packed: AttentionSteps, chosen: Sequence[int] | None) -> Tensor:
    """int64, on the CPU: the steps of some sequences, of all where none are chosen."""
    offsets = packed.offsets.tolist()
    if chosen is None:
        return torch.arange(offsets[-1])
    return torch.cat([torch.arange(offsets[i], offsets[i + 1]) for i in chosen])


def check_supported(contender: AttentionContender) -> None:
    """Raise UnsupportedError where torch has no kernel for a contender here."""
    try:
        contender.passes()
    except NotImplementedError as error:
        raise UnsupportedError(f"torch has no kernel here: {str(error).splitlines()[0]}") from None


@comparing()
def compared(
    contender: AttentionContender,
    packed: AttentionSteps,
    name: str,
    chosen: Sequence[int] | None = None,
) -> tuple[float, list[ResultCheck]]:
    """Largest relative deviation of output and gradients from float64, and their checks.

    Args:
        contender, packed: what was timed, and what it attends to.
        name: of the contender.
        chosen: sequences that are compared; None: all.
    """
    names, rows = ("outputs", "queries", "keys", "values"), steps_of(packed, chosen)
    passes = (contender.steps(t).cpu()[rows].double() for t in contender.passes())
    found = dict(zip(names, passes, strict=True))

    def exact(dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
        return dict(zip(names, exact_passes(packed, dtype, chosen), strict=True))

    wanted = exact()
    worst = max(deviations(found, wanted).values())
    kinds = {"outputs": names[:1], "gradients": names[1:]}
    if contender.tolerance > TOLERANCE:
        # Rounding inputs to eight bits is no error of the operator.
        wanted = exact(torch.bfloat16)
        return worst, [
            close(of, {n: found[n] for n in some}, {n: wanted[n] for n in some},
                  contender.tolerance, against=AGAINST, system=name)
            for of, some in kinds.items()
        ]  # fmt: skip
    return worst, [
        close_to_exact(
            of,
            {n: found[n] for n in some},
            {n: wanted[n] for n in some},
            lambda some=some: {n: t for n, t in exact().items() if n in some},
            system=name,
        )
        for of, some in kinds.items()
    ]


class Attention(Grid):
    paper = "dgc"
    name = NAME
    title = "Attention over sequences of different lengths"
    question = "How does attention over packed rows compare with torch's own operators?"
    reading = (
        "Forward and backward pass over the steps of sequences whose lengths are drawn from an "
        "exponential distribution. Packed rows hold several sequences, as in section 5.1.2; "
        "torch's scaled_dot_product_attention takes the same rows with a block-diagonal mask, a "
        "padded row for each sequence, or jagged nested tensors; torch.nn.attention.varlen works "
        "in bfloat16 on a CUDA device. Outputs and gradients are compared with float64 after "
        "the timed passes, those of drawn sequences in processes after the first; making a layout "
        "is not timed."
    )

    axes: ClassVar = {
        "case": {"smoke": (CASES[0].name,), None: tuple(BY_NAME)},
        "contender": {None: tuple(CONTENDERS)},
    }
    presets: ClassVar = ("smoke", "full", "paper")  # it decides no claim, quick has no time
    group = "{case}"
    repeats: ClassVar = ROUNDS
    timeout_s: ClassVar = {"smoke": 60, None: 120}

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        packed = draw_steps(BY_NAME[str(cell.params["case"])], context.device)
        contender = CONTENDERS[str(cell.params["contender"])](packed)
        check_supported(contender)
        sync = torch.cuda.synchronize if context.device == "cuda" else None
        ours = str(cell.params["contender"]) == OURS
        budget = max(CONTROL_S if ours else 0.0, context.budget_s)
        if context.preset == "smoke":
            budget = context.budget_s
        steady = measure_steady(contender.passes, budget_s=budget, sync=sync)
        first, name = context.round == 1, str(cell.params["contender"])
        count = packed.lengths.numel()
        drawn = sorted(random.SystemRandom().sample(range(count), min(DRAWN, count)))
        worst, checks = compared(contender, packed, name, None if first else drawn)
        half = contender.tolerance > TOLERANCE
        found = Measurement(
            warmup=steady.warmup,
            checks=checks,
            deviation={"output": worst} if first and not half else {},
            data={"dataset": "drawn sequences", "twin": True},
            notes=["computes in bfloat16, the others in float32"] if half else [],
        )
        found.observe("operation_time", median(steady.samples), samples=steady.samples)
        found.observe("vertex_steps", packed.steps[0].shape[0])
        found.observe("vertex_steps", int(packed.lengths.square().sum()), of="pairs")
        if first and half:
            found.observe("deviation", worst)
        return found

    def figures(self) -> list[FigureSpec]:
        return [
            chart("speedup", "attention", "Attention over packed rows, against torch's operators",
                attention_points, baseline_label="the operator of the row",
                xlabel="time of torch's operator / time of packed rows",
                contenders={name: Contender("", title) for name, title in TITLES.items()}),
        ]  # fmt: skip

    def answer(self, rows: Sequence[Any]) -> str:
        found = [p for p in attention_points(rows) if not p.get("failed")]
        if not found:
            return ""
        low, high = min(p["value"] for p in found), max(p["value"] for p in found)
        return (
            f"Attention over packed rows takes {low:.2g} to {high:.2g} times less time than "
            f"torch's operators in {len(found)} comparisons (below 1 it is slower)."
        )


def attention_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Time of each of torch's operators over ours, a panel for each case."""
    mine = [r for r in rows if r.experiment == NAME]
    lost = {(r.params["case"], r.params["contender"]): r for r in failures(rows, NAME)}
    points: list[dict[str, Any]] = []
    for case in dict.fromkeys(r.params["case"] for r in mine):
        for name in list(CONTENDERS)[1:]:
            point: dict[str, Any] = {
                "panel": case, "row": TITLES.get(name, name), "system": OURS, "baseline": name
            }  # fmt: skip
            times = Table.of(mine, case=case).where("operation_time")
            found = ratio(*(times.where(contender=who) for who in (name, OURS)))
            bad = lost.get((case, name)) or lost.get((case, OURS))
            if found is not None:
                point |= {
                    "value": found.value, "low": found.low, "high": found.high, "n": found.n,
                    "twin": found.twin, "row_ids": found.rows, "deviation": found.deviation,
                }  # fmt: skip
            elif bad is not None:
                point |= {"failed": failed(bad), "failed_system": bad.params["contender"]}
            elif times.where(contender=OURS):
                point["failed"] = "skipped: not run"
            else:
                continue
            points.append(point)
    return points
