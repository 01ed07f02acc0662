"""Race of the fused scans against plain torch, forward and backward of one training frame.

    python benchmarks/race_scan.py            # a table, about a minute
    python benchmarks/race_scan.py --json     # the same for machines

Contenders run in turn, round by round, and ratios are formed inside a round. GFLOP/s count the
arithmetic that a frame needs (products only, no recomputation), and their share is of the sgemm
rate measured in the same rounds. Every contender's outputs and gradients are first compared with
the loop in float64. Ours has to be within 1e-5 of it; another that is further off than 1e-4 is
reported and not timed.

`torch loop` is the re-ordered form: one product for the inputs of all steps, then a loop over the
hidden part. `torch.nn.LSTM` is the library's own fused layer.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from dgbench.kernels_cuda.scan import gru_scan, lstm_scan

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
    columns = case.gates * case.hidden
    x = torch.randn(case.steps, case.vertices, case.features, generator=generator)
    w_in = torch.randn(case.features, columns, generator=generator) * case.features**-0.5
    w_hid = torch.randn(case.hidden, columns, generator=generator) * case.hidden**-0.5
    bias = torch.randn(columns, generator=generator) * 0.1
    return [x, w_in, w_hid, bias]


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


def seconds(action: Callable[[], object], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        action()
    return (time.perf_counter() - start) / repeats


def race(case: Case, rounds: int, budget_s: float) -> dict:
    runs, inputs = contenders(case), make_inputs(case)
    deviation = deviations(case, runs, inputs)
    if not deviation[OURS] <= LIMIT_OURS:
        sys.exit(f"{case.name}: {OURS} deviates by {deviation[OURS]:.1e} from float64, not timed")
    left_out = {n: v for n, v in deviation.items() if n != OURS and not v <= LIMIT_OTHERS}
    runs = {name: run for name, run in runs.items() if name not in left_out}
    square = torch.randn(1024, 1024)
    repeats = 1 if case.vertices > 1000 else 20
    samples: dict[str, list[float]] = {name: [] for name in runs}
    sgemm = []
    for name in runs:  # warm-up
        frame(runs[name], case, inputs)
    start = time.perf_counter()
    for number in range(rounds):
        if number >= LEAST_ROUNDS and time.perf_counter() - start > budget_s:
            break
        order = list(runs) if number % 2 == 0 else list(runs)[::-1]
        for name in order:
            samples[name].append(seconds(lambda run=runs[name]: frame(run, case, inputs), repeats))
        sgemm.append(2e-9 * 1024**3 / seconds(lambda: square @ square, 10))
    limit = statistics.median(sgemm)
    result = {
        "case": case.name,
        "gflop": case.gflop,
        "sgemm_gflop_s": limit,
        "contenders": {},
        "too_far": left_out,
    }
    for name, values in samples.items():
        ratios = [v / ours for v, ours in zip(values, samples[OURS], strict=True)]
        rate = case.gflop / statistics.median(values)
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
    chosen = [c for c in CASES if args.only in c.name]
    if not chosen:
        parser.error(f"--only matches none of: {', '.join(c.name for c in CASES)}")
    if args.threads:
        torch.set_num_threads(args.threads)
    results = []
    for case in chosen:
        results.append(race(case, args.rounds, args.seconds))
        if not args.json:
            show(results[-1])
    if args.json:
        print(json.dumps({"threads": torch.get_num_threads(), "results": results}, indent=1))


if __name__ == "__main__":
    main()
