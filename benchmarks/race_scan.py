"""Race of the fused scans against plain torch, forward and backward of one training frame.

    python benchmarks/race_scan.py            # a table, about two minutes
    python benchmarks/race_scan.py --json     # the same for machines

Contenders run in turn, round by round, and ratios are formed inside a round. GFLOP/s count the
arithmetic that a frame needs (products only, no recomputation), and their share is of the sgemm
rate measured in the same rounds. Every contender's outputs and gradients are first compared with
the loop in float64. Ours has to be within 1e-5 of it; another that is further off than 1e-4 is
reported and not timed.

`torch loop` is the re-ordered form: one product for the inputs of all steps, then a loop over the
hidden part. `torch.nn.LSTM` is the library's own fused layer.

Packed cases hold sequences of many lengths. Against `packed_lstm_scan` over rows of several
sequences stand the same scan and `torch.nn.LSTM` over rows padded with zeros to the longest
sequence, and `torch.nn.LSTM` over a `PackedSequence`, which also leaves padding out. Each gets its
inputs and the gradient of its outputs in its own layout; making the layouts is not timed.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from dgbench.kernels_cuda.scan import (
    CONTINUES,
    FROM_ZERO,
    gru_scan,
    lstm_scan,
    packed_gru_scan,
    packed_lstm_scan,
)

OURS = "dgbench"
LIMIT_OURS = 1e-5
LIMIT_OTHERS = 1e-4
"""Relative deviation from float64. The library's LSTM on the CPU comes close to 2e-5."""
LEAST_ROUNDS = 3


@dataclass(frozen=True)
class Case:
    """One frame. The first layer of a model aggregates raw features, so its x needs no gradient."""

    name: str
    cell: str
    steps: int
    vertices: int
    features: int
    hidden: int
    grad_x: bool
    all_steps: bool

    @property
    def gates(self) -> int:
        return 3 if self.cell == "gru" else 4

    @property
    def gflop(self) -> float:
        """Products of a forward and a backward pass."""
        per_input = 2e-9 * self.steps * self.vertices * self.gates * self.hidden
        passes_x = 3 if self.grad_x else 2
        return per_input * (passes_x * self.features + 3 * self.hidden)


CASES = (
    Case("T-GCN 20k", "gru", 16, 20_000, 16, 32, False, False),
    Case("LSTM 64 to 32, 20k", "lstm", 16, 20_000, 64, 32, True, True),
    Case("LSTM 32 to 32, 20k", "lstm", 16, 20_000, 32, 32, True, False),
    Case("T-GCN 170", "gru", 16, 170, 16, 32, False, False),
    Case("T-GCN 129", "gru", 16, 129, 16, 32, False, False),
    Case("LSTM 32 to 32, 170", "lstm", 16, 170, 32, 32, True, False),
)

Run = Callable[[list[Tensor]], list[Tensor]]


@dataclass(frozen=True)
class PackedCase:
    """Sequences whose lengths are exponential with the given mean, cut at `longest`."""

    name: str
    cell: str
    sequences: int
    mean: float
    longest: int
    features: int
    hidden: int

    @property
    def gates(self) -> int:
        return 3 if self.cell == "gru" else 4

    def lengths(self) -> Tensor:
        """int64[sequences], the longest first, as `PackedSequence` wants them."""
        generator = torch.Generator().manual_seed(5)
        drawn = torch.empty(self.sequences).exponential_(1 / self.mean, generator=generator)
        return (1 + drawn.long()).clamp(max=self.longest).sort(descending=True).values


PACKED_CASES = (
    PackedCase("packed LSTM, mean 8 of 60", "lstm", 2000, 8, 60, 64, 32),
    PackedCase("packed LSTM, mean 3 of 20", "lstm", 8000, 3, 20, 64, 32),
    PackedCase("packed LSTM, mean 40 of 60", "lstm", 800, 40, 60, 32, 32),
    PackedCase("packed GRU, mean 8 of 60", "gru", 2000, 8, 60, 32, 32),
)


def gru_loop(x: Tensor, w_in: Tensor, w_hid: Tensor, bias: Tensor, h: Tensor) -> list[Tensor]:
    hidden = w_hid.shape[0]
    from_x = torch.addmm(bias, x.flatten(0, 1), w_in).view(*x.shape[:2], -1)
    w_zr, w_c = w_hid[:, : 2 * hidden], w_hid[:, 2 * hidden :]
    states = []
    for step in from_x:
        z, r = torch.sigmoid(torch.addmm(step[:, : 2 * hidden], h, w_zr)).chunk(2, dim=1)
        c = torch.tanh(torch.addmm(step[:, 2 * hidden :], r * h, w_c))
        h = c + z * (h - c)
        states.append(h)
    return states


def lstm_loop(x: Tensor, w_in: Tensor, w_hid: Tensor, bias: Tensor, h: Tensor) -> list[Tensor]:
    from_x = torch.addmm(bias, x.flatten(0, 1), w_in).view(*x.shape[:2], -1)
    c = torch.zeros_like(h)
    states = []
    for step in from_x:
        i, f, g, o = torch.addmm(step, h, w_hid).chunk(4, dim=1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        states.append(h)
    return states


def contenders(case: Case) -> dict[str, Run]:
    """Functions from [x, w_in, w_hid, bias] to [h_all or h_last]."""

    def fused(inputs: list[Tensor]) -> list[Tensor]:
        scan = gru_scan if case.cell == "gru" else lstm_scan
        h_all, h_last, *_ = scan(*inputs, all_steps=case.all_steps)
        return [h_all if case.all_steps else h_last]

    def loop(inputs: list[Tensor]) -> list[Tensor]:
        h = inputs[0].new_zeros(case.vertices, case.hidden)
        states = (gru_loop if case.cell == "gru" else lstm_loop)(*inputs, h)
        return [torch.stack(states) if case.all_steps else states[-1]]

    runs: dict[str, Run] = {OURS: fused, "torch loop": loop}
    if case.cell == "lstm":
        layer = torch.nn.LSTM(case.features, case.hidden)
        names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")

        def library(inputs: list[Tensor]) -> list[Tensor]:
            x, w_in, w_hid, bias = inputs
            # The gradient flows to our own weights through the transposes, a trifle.
            given = dict(zip(names, (w_in.T, w_hid.T, bias, torch.zeros_like(bias)), strict=True))
            h_all, (h_last, _) = torch.func.functional_call(layer, given, (x,))
            return [h_all if case.all_steps else h_last[0]]

        runs["torch.nn.LSTM"] = library
    return runs


def make_inputs(case: Case) -> list[Tensor]:
    generator = torch.Generator().manual_seed(11)
    x = torch.randn(case.steps, case.vertices, case.features, generator=generator)
    return [x, *make_weights(case, generator)]


def make_weights(case: Case | PackedCase, generator: torch.Generator) -> list[Tensor]:
    columns = case.gates * case.hidden
    w_in = torch.randn(case.features, columns, generator=generator) * case.features**-0.5
    w_hid = torch.randn(case.hidden, columns, generator=generator) * case.hidden**-0.5
    bias = torch.randn(columns, generator=generator) * 0.1
    return [w_in, w_hid, bias]


def frame(run: Run, case: Case, inputs: list[Tensor]) -> list[Tensor]:
    """One forward and backward pass; gives the output and the gradients."""
    leaves = [t.detach() for t in inputs]
    wanted = leaves if case.grad_x else leaves[1:]
    for leaf in wanted:
        leaf.requires_grad_()
    outputs = run(leaves)
    # A mean square: its gradient has many digits, and costs one pass over the output.
    grads = torch.autograd.grad([o.square().mean() for o in outputs], wanted)
    return [*(o.detach() for o in outputs), *grads]


def deviations(case: Case, runs: dict[str, Run], inputs: list[Tensor]) -> dict[str, float]:
    """Largest relative deviation over the output and every gradient, against float64."""
    exact = frame(runs["torch loop"], case, [t.double() for t in inputs])
    found = {}
    for name, run in runs.items():
        pairs = zip(frame(run, case, inputs), exact, strict=True)
        found[name] = max(float((a.double() - b).norm() / b.norm()) for a, b in pairs)
    return found


@dataclass(frozen=True)
class Layout:
    """One contender of a packed case: where it keeps the steps of the sequences, and its run.

    Attributes:
        run: from [x, w_in, w_hid, bias] to the states [*shape, H].
        shape: of the steps.
        place: int64[all steps], the flat place of every step, sequence after sequence.
    """

    run: Callable[[list[Tensor]], Tensor]
    shape: tuple[int, ...]
    place: Tensor

    def spread(self, steps: Tensor) -> Tensor:
        """[all steps, F] -> [*shape, F], zeros elsewhere."""
        flat = steps.new_zeros(math.prod(self.shape), steps.shape[1])
        return flat.index_copy(0, self.place, steps).view(*self.shape, -1)

    def frame(self, x: Tensor, weights: list[Tensor], grad: Tensor) -> list[Tensor]:
        leaves = [t.detach().requires_grad_() for t in (x, *weights)]
        out = self.run(leaves)
        return [out.detach(), *torch.autograd.grad(out, leaves, grad)]


def fill_rows(lengths: list[int], longest: int) -> list[list[int]]:
    """Sequence numbers of every row: first fit among the last rows, for descending lengths."""
    rows: list[list[int]] = []
    room: list[int] = []
    for number, length in enumerate(lengths):
        for row in range(max(0, len(rows) - 256), len(rows)):
            if room[row] >= length:
                break
        else:
            row = len(rows)
            rows.append([])
            room.append(longest)
        rows[row].append(number)
        room[row] -= length
    return rows


def layouts(case: PackedCase) -> dict[str, Layout]:
    lengths = case.lengths()
    count, longest = case.sequences, int(lengths.max())
    first = lengths.cumsum(0) - lengths
    number = torch.repeat_interleave(torch.arange(count), lengths)
    step = torch.arange(len(number)) - first[number]
    rows = fill_rows(lengths.tolist(), longest)
    begins = torch.full((longest, len(rows)), CONTINUES, dtype=torch.int32)
    row_of, start_of = torch.empty(count, dtype=torch.int64), torch.empty(count, dtype=torch.int64)
    for row, held in enumerate(rows):
        at = 0
        for sequence in held:
            row_of[sequence], start_of[sequence] = row, at
            begins[at, row] = FROM_ZERO
            at += int(lengths[sequence])
        if at < longest:
            begins[at, row] = FROM_ZERO
    packed = (start_of[number] + step) * len(rows) + row_of[number]
    padded = step * count + number

    def fused(inputs: list[Tensor]) -> Tensor:
        if case.cell == "gru":
            return packed_gru_scan(*inputs, begins)
        return packed_lstm_scan(*inputs, begins)[0]

    def with_zeros(inputs: list[Tensor]) -> Tensor:
        scan = gru_scan if case.cell == "gru" else lstm_scan
        return scan(*inputs, all_steps=True)[0]

    def loop(inputs: list[Tensor]) -> Tensor:
        h = inputs[0].new_zeros(count, case.hidden)
        return torch.stack((gru_loop if case.cell == "gru" else lstm_loop)(*inputs, h))

    zeros = (longest, count)
    found = {
        OURS: Layout(fused, tuple(begins.shape), packed),
        "dgbench, zeros": Layout(with_zeros, zeros, padded),
        "torch loop": Layout(loop, zeros, padded),
    }
    if case.cell == "lstm":
        layer = torch.nn.LSTM(case.features, case.hidden)
        sizes = (lengths.unsqueeze(0) > torch.arange(longest).unsqueeze(1)).sum(1)

        def library(inputs: list[Tensor], batched: bool) -> Tensor:
            x, w_in, w_hid, bias = inputs
            names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
            given = dict(zip(names, (w_in.T, w_hid.T, bias, torch.zeros_like(bias)), strict=True))
            if batched:
                x = torch.nn.utils.rnn.PackedSequence(x, sizes)
            out = torch.func.functional_call(layer, given, (x,))[0]
            return out.data if batched else out

        before = sizes.cumsum(0) - sizes
        found["torch.nn.LSTM"] = Layout(lambda i: library(i, False), zeros, padded)
        found["PackedSequence"] = Layout(
            lambda i: library(i, True), (len(number),), before[step] + number
        )
    return found


def race_packed(case: PackedCase, rounds: int, budget_s: float) -> dict:
    found = layouts(case)
    total = len(found[OURS].place)
    generator = torch.Generator().manual_seed(11)
    x = torch.randn(total, case.features, generator=generator)
    grad = torch.randn(total, case.hidden, generator=generator) / total
    weights = make_weights(case, generator)
    placed = {n: (y.spread(x), y.spread(grad)) for n, y in found.items()}

    def shown(layout: Layout, frame: list[Tensor]) -> list[Tensor]:
        """States and the gradient of x in one order."""
        steps = [t.flatten(0, -2).index_select(0, layout.place) for t in frame[:2]]
        return [*steps, *frame[2:]]

    exact_in = found["torch loop"]
    exact = exact_in.frame(
        exact_in.spread(x).double(), [w.double() for w in weights], exact_in.spread(grad).double()
    )
    exact = shown(exact_in, exact)
    deviation = {}
    for name, layout in found.items():  # the warm-up too
        pairs = zip(
            shown(layout, layout.frame(placed[name][0], weights, placed[name][1])),
            exact,
            strict=True,
        )
        deviation[name] = max(float((a.double() - b).norm() / b.norm()) for a, b in pairs)
    runs = {
        name: lambda y=layout, p=placed[name]: y.frame(p[0], weights, p[1])
        for name, layout in found.items()
    }
    per_step = 6e-9 * case.gates * case.hidden * (case.features + case.hidden)
    rows = {name: math.prod(y.shape) for name, y in found.items()}
    result = take_turns(case.name, runs, deviation, per_step * total, 1, rounds, budget_s)
    result["steps"] = {"real": total, "held": rows}
    return result


def seconds(action: Callable[[], object], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        action()
    return (time.perf_counter() - start) / repeats


def race(case: Case, rounds: int, budget_s: float) -> dict:
    runs, inputs = contenders(case), make_inputs(case)
    deviation = deviations(case, runs, inputs)
    actions = {name: lambda run=run: frame(run, case, inputs) for name, run in runs.items()}
    for action in actions.values():  # warm-up
        action()
    repeats = 1 if case.vertices > 1000 else 20
    return take_turns(case.name, actions, deviation, case.gflop, repeats, rounds, budget_s)


def take_turns(
    title: str,
    runs: dict[str, Callable[[], object]],
    deviation: dict[str, float],
    gflop: float,
    repeats: int,
    rounds: int,
    budget_s: float,
) -> dict:
    if not deviation[OURS] <= LIMIT_OURS:
        sys.exit(f"{title}: {OURS} deviates by {deviation[OURS]:.1e} from float64, not timed")
    left_out = {n: v for n, v in deviation.items() if n != OURS and not v <= LIMIT_OTHERS}
    runs = {name: run for name, run in runs.items() if name not in left_out}
    square = torch.randn(1024, 1024)
    samples: dict[str, list[float]] = {name: [] for name in runs}
    sgemm = []
    start = time.perf_counter()
    for number in range(rounds):
        if number >= LEAST_ROUNDS and time.perf_counter() - start > budget_s:
            break
        order = list(runs) if number % 2 == 0 else list(runs)[::-1]
        for name in order:
            samples[name].append(seconds(runs[name], repeats))
        sgemm.append(2e-9 * 1024**3 / seconds(lambda: square @ square, 10))
    limit = statistics.median(sgemm)
    result = {
        "case": title,
        "gflop": gflop,
        "sgemm_gflop_s": limit,
        "contenders": {},
        "too_far": left_out,
    }
    for name, values in samples.items():
        ratios = [v / ours for v, ours in zip(values, samples[OURS], strict=True)]
        rate = gflop / statistics.median(values)
        result["contenders"][name] = {
            "seconds": statistics.median(values),
            "samples": values,
            "gflop_s": rate,
            "share_of_sgemm": rate / limit,
            "over_dgbench": statistics.median(ratios),
            "over_dgbench_range": [min(ratios), max(ratios)],
            "deviation": deviation[name],
        }
    return result


def show(result: dict) -> None:
    print(
        f"\n{result['case']}: {result['gflop']:.3g} GFLOP a frame, sgemm "
        f"{result['sgemm_gflop_s']:.0f} GFLOP/s"
    )
    print(
        f"  {'':14} {'ms':>9} {'GFLOP/s':>8} {'of sgemm':>8} {'over dgbench':>22} {'deviation':>10}"
    )
    for name, row in result["contenders"].items():
        low, high = row["over_dgbench_range"]
        print(
            f"  {name:14} {row['seconds'] * 1e3:9.3f} {row['gflop_s']:8.1f} "
            f"{row['share_of_sgemm']:8.0%} {row['over_dgbench']:8.2f} [{low:.2f}, {high:.2f}]"
            f"{'':4}{row['deviation']:10.1e}"
        )
    if "steps" in result:
        held = ", ".join(f"{n} {v}" for n, v in result["steps"]["held"].items())
        print(f"  steps: {result['steps']['real']} real; held by {held}")
    for name, value in result["too_far"].items():
        print(f"  {name:14} not timed: deviates by {value:.1e} from float64")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9, help="rounds per case (default 9)")
    parser.add_argument(
        "--seconds", type=float, default=8.0, help="no new round of a case after this (default 8)"
    )
    parser.add_argument("--threads", type=int, help="torch threads (default: as torch has it)")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    args = parser.parse_args()
    if args.rounds < 1 or (args.threads is not None and args.threads < 1):
        parser.error("--rounds and --threads take numbers from 1")
    cases = (*CASES, *PACKED_CASES)
    chosen = [c for c in cases if args.only in c.name]
    if not chosen:
        parser.error(f"--only matches none of: {', '.join(c.name for c in cases)}")
    if args.threads:
        torch.set_num_threads(args.threads)
    results = []
    for case in chosen:
        run = race_packed if isinstance(case, PackedCase) else race
        results.append(run(case, args.rounds, args.seconds))
        if not args.json:
            show(results[-1])
    if args.json:
        print(json.dumps({"threads": torch.get_num_threads(), "results": results}, indent=1))


if __name__ == "__main__":
    main()
