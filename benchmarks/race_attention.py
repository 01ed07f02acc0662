"""Race of compiled attention against plain torch and graph libraries, forward and backward.

    python benchmarks/race_attention.py            # a table, about two minutes
    python benchmarks/race_attention.py --json     # the same for machines

Two kinds of cases. Graph attention: values and scores of vertices are given, every contender makes
scores of entries, softmax with each row's own loop, weighed sums and all gradients. `torch` is
`models.plain_attend_rows`; `PyG GATConv` runs its own `edge_updater` and `propagate` on the same
numbers, without the dense layer before them; `DGL` runs `u_add_v`, `edge_softmax` and
`u_mul_e_sum`, which is its GATConv. Loops are stored in the matrix for both libraries beforehand.

Attention over steps: rows of several sequences. `torch SDPA, mask` hides other sequences of a row
by a block-diagonal mask; `torch SDPA, zeros` pads every sequence to the longest in a row of its own
and hides what is behind it. Making the layouts is not timed.

Contenders run in turn, round by round; ratios are formed inside a round. Outputs and gradients of
each are first compared with float64; ours has to be within 1e-5 of it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from dgbench.kernels_cuda import attention
from dgbench.models.attention import plain_attend_rows, plain_packed_attention

OURS = "dgbench"
LIMIT_OURS = 1e-5
LEAST_ROUNDS = 3
SLOPE = 0.2

Run = Callable[[list[Tensor]], Tensor]


@dataclass(frozen=True)
class GraphCase:
    """Vertices with neighbours drawn from a skewed distribution; degrees vary."""

    name: str
    rows: int
    degree: float
    heads: int
    width: int

    def matrix(self) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(3)
        rates = torch.empty(self.rows).exponential_(1 / self.degree, generator=generator)
        counts = torch.poisson(rates, generator=generator).long().clamp(max=self.rows // 2)
        indptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
        drawn = torch.rand(int(indptr[-1]), generator=generator)
        indices = (drawn**2 * self.rows).long().clamp(max=self.rows - 1)
        owner = torch.repeat_interleave(torch.arange(self.rows), counts)
        indices = torch.where(indices == owner, (indices + 1) % self.rows, indices)
        keys = torch.unique(owner * self.rows + indices)
        owner = keys // self.rows
        indptr[1:] = torch.bincount(owner, minlength=self.rows).cumsum(0)
        return indptr, (keys % self.rows).int()


@dataclass(frozen=True)
class StepCase:
    """Sequences with exponential lengths, packed into rows of `longest` steps."""

    name: str
    sequences: int
    mean: float
    longest: int
    heads: int
    width: int


GRAPHS = (
    GraphCase("0.3 neighbours, 1 head of 32", 200_000, 0.3, 1, 32),
    GraphCase("2 neighbours, 1 head of 32", 100_000, 2, 1, 32),
    GraphCase("12 neighbours, 1 head of 32", 40_000, 12, 1, 32),
    GraphCase("60 neighbours, 1 head of 64", 8_000, 60, 1, 64),
    GraphCase("12 neighbours, 4 heads of 8", 40_000, 12, 4, 8),
)
STEPS = (
    StepCase("mean 4 of 16 steps", 12_000, 4, 16, 1, 32),
    StepCase("mean 10 of 60 steps", 6_000, 10, 60, 1, 32),
    StepCase("mean 60 of 120 steps", 1_000, 60, 120, 1, 32),
    StepCase("mean 60 of 120 steps, 4 heads", 1_000, 60, 120, 4, 8),
)


def graph_contenders(case: GraphCase, matrix: tuple[Tensor, Tensor]) -> dict[str, Run]:
    """Functions from [values [N, K, D], source [N, K], target [N, K]] to [N, K, D]."""
    indptr, indices = matrix
    found: dict[str, Run] = {
        OURS: lambda i: attention.attend_rows(*matrix, *i, SLOPE),
        "torch": lambda i: plain_attend_rows(*matrix, *i, SLOPE),
    }
    own = torch.arange(case.rows)
    senders = torch.cat([indices.long(), own])
    receivers = torch.cat([torch.repeat_interleave(own, indptr.diff()), own])
    try:
        from torch_geometric.nn import GATConv
    except ImportError:
        pass
    else:
        # Sorted by receiver, as a loader would keep them.
        order = receivers.argsort(stable=True)
        edges = torch.stack([senders[order], receivers[order]])
        layer = GATConv(1, case.width, case.heads, negative_slope=SLOPE, add_self_loops=False)

        def pyg(inputs: list[Tensor]) -> Tensor:
            values, source, target = inputs
            alpha = layer.edge_updater(edges, alpha=(source, target), edge_attr=None, size=None)
            return layer.propagate(edges, x=(values, values), alpha=alpha, size=None)

        found["PyG GATConv"] = pyg
    os.environ.setdefault("DGLBACKEND", "pytorch")  # else DGL writes one into the home folder
    try:
        import dgl
        from dgl import function as fn
    except Exception:  # its libraries may not load
        return found
    graph = dgl.graph((senders, receivers), num_nodes=case.rows)

    def by_dgl(inputs: list[Tensor]) -> Tensor:
        values, source, target = inputs
        with graph.local_scope():
            graph.srcdata.update({"ft": values, "el": source.unsqueeze(-1)})
            graph.dstdata["er"] = target.unsqueeze(-1)
            graph.apply_edges(fn.u_add_v("el", "er", "e"))
            score = functional.leaky_relu(graph.edata.pop("e"), SLOPE)
            graph.edata["a"] = dgl.nn.functional.edge_softmax(graph, score)
            graph.update_all(fn.u_mul_e("ft", "a", "m"), fn.sum("m", "ft"))
            return graph.dstdata["ft"]

    found["DGL"] = by_dgl
    return found


def race_graph(case: GraphCase, rounds: int, budget_s: float) -> dict:
    matrix = case.matrix()
    generator = torch.Generator().manual_seed(11)
    shapes = [(case.rows, case.heads, case.width), *[(case.rows, case.heads)] * 2]
    inputs = [torch.randn(s, generator=generator) for s in shapes]
    grad = torch.randn(shapes[0], generator=generator)
    runs = graph_contenders(case, matrix)
    exact = frame(runs["torch"], [t.double() for t in inputs], grad.double())
    frames = {name: frame(run, inputs, grad) for name, run in runs.items()}
    result = take_turns(
        case.name,
        {n: lambda run=run: frame(run, inputs, grad) for n, run in runs.items()},
        {name: deviation(found, exact) for name, found in frames.items()},
        rounds,
        budget_s,
    )
    entries = len(matrix[1]) + case.rows
    kept = case.rows * case.heads * 3 + int((matrix[0].diff() > 0).sum()) * case.heads * case.width
    result["size"] = f"{case.rows} rows, {entries} entries with loops"
    result["kept_bytes"] = {OURS: 4 * kept, "per entry and head": 4 * entries * case.heads}
    return result


def race_steps(case: StepCase, rounds: int, budget_s: float) -> dict:
    generator = torch.Generator().manual_seed(7)
    drawn = torch.empty(case.sequences).exponential_(1 / case.mean, generator=generator)
    lengths = (1 + drawn.long()).clamp(max=case.longest)
    held: list[list[int]] = [[]]
    room = case.longest
    for number, length in enumerate(lengths.tolist()):  # as they come: next fit
        if length > room:
            held.append([])
            room = case.longest
        held[-1].append(number)
        room -= length
    sequence = torch.full((case.longest, len(held)), -1)
    for row, numbers in enumerate(held):
        inside = torch.repeat_interleave(torch.tensor(numbers), lengths[numbers])
        sequence[: len(inside), row] = inside
    real = sequence.t().reshape(-1) >= 0
    first = lengths.cumsum(0) - lengths
    number = torch.repeat_interleave(torch.arange(case.sequences), lengths)
    step = torch.arange(len(number)) - first[number]
    packed = torch.arange(sequence.numel())[real]  # of [N, T], sequences in their order
    packed = packed % case.longest * len(held) + packed // case.longest
    padded = step * case.sequences + number
    width = case.heads * case.width
    zeros = torch.where(
        torch.arange(case.longest).unsqueeze(1) < lengths.unsqueeze(0),
        torch.arange(case.sequences),
        -1,
    )

    def spread(steps: Tensor, like: Tensor, place: Tensor) -> Tensor:
        flat = steps.new_zeros(like.numel(), width).index_copy(0, place, steps)
        return flat.view(*like.shape, width)

    steps = [torch.randn(len(number), width, generator=generator) for _ in range(4)]
    forms = {
        OURS: (attention.packed_attention, sequence, packed),
        "torch SDPA, mask": (plain_packed_attention, sequence, packed),
        "torch SDPA, zeros": (plain_packed_attention, zeros, padded),
    }

    def framed(form, dtype: torch.dtype) -> tuple[Callable[[], list[Tensor]], Tensor]:
        function, owner, place = form
        *inputs, grad = (spread(t.to(dtype), owner, place) for t in steps)
        return (lambda: frame(lambda i: function(*i, owner, heads=case.heads), inputs, grad)), place

    def shown(made: tuple[Callable[[], list[Tensor]], Tensor]) -> list[Tensor]:
        return [t.flatten(0, 1).index_select(0, made[1]) for t in made[0]()]

    exact = shown(framed(forms["torch SDPA, mask"], torch.float64))
    made = {name: framed(form, torch.float32) for name, form in forms.items()}
    result = take_turns(
        case.name,
        {name: action for name, (action, _) in made.items()},
        {name: deviation(shown(pair), exact) for name, pair in made.items()},
        rounds,
        budget_s,
    )
    pairs = attention.spans_of(sequence, None, sequence.shape, sequence.device).pairs
    result["size"] = f"{len(number)} steps, {pairs} pairs inside sequences"
    result["pairs"] = {
        OURS: pairs,
        "torch SDPA, mask": len(held) * case.longest**2,
        "torch SDPA, zeros": case.sequences * case.longest**2,
    }
    return result


def frame(run: Run, inputs: list[Tensor], grad: Tensor) -> list[Tensor]:
    leaves = [t.detach().requires_grad_() for t in inputs]
    out = run(leaves)
    return [out.detach(), *torch.autograd.grad(out, leaves, grad)]


def deviation(found: list[Tensor], exact: list[Tensor]) -> float:
    return max(float((a.double() - b).norm() / b.norm()) for a, b in zip(found, exact, strict=True))


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def take_turns(
    title: str,
    runs: dict[str, Callable[[], object]],
    deviations: dict[str, float],
    rounds: int,
    budget_s: float,
) -> dict:
    if not deviations[OURS] <= LIMIT_OURS:
        sys.exit(f"{title}: {OURS} deviates by {deviations[OURS]:.1e} from float64, not timed")
    samples: dict[str, list[float]] = {name: [] for name in runs}
    start = time.perf_counter()
    for number in range(rounds):
        if number >= LEAST_ROUNDS and time.perf_counter() - start > budget_s:
            break
        for name in list(runs) if number % 2 == 0 else list(runs)[::-1]:
            samples[name].append(seconds(runs[name]))
    rows = {}
    for name, values in samples.items():
        ratios = [v / ours for v, ours in zip(values, samples[OURS], strict=True)]
        rows[name] = {
            "seconds": statistics.median(values),
            "samples": values,
            "over_dgbench": statistics.median(ratios),
            "over_dgbench_range": [min(ratios), max(ratios)],
            "deviation": deviations[name],
        }
    return {"case": title, "contenders": rows}


def show(result: dict) -> None:
    print(f"\n{result['case']}: {result['size']}")
    print(f"  {'':18} {'ms':>9} {'over dgbench':>22} {'deviation':>10}")
    for name, row in result["contenders"].items():
        low, high = row["over_dgbench_range"]
        print(
            f"  {name:18} {row['seconds'] * 1e3:9.2f} {row['over_dgbench']:8.2f} "
            f"[{low:.2f}, {high:.2f}]{'':4}{row['deviation']:10.1e}"
        )
    for key, unit in (("kept_bytes", "bytes for backward"), ("pairs", "pairs")):
        if key in result:
            print(f"  {unit}: " + ", ".join(f"{n} {v}" for n, v in result[key].items()))


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
    chosen = [c for c in (*GRAPHS, *STEPS) if args.only in c.name]
    if not chosen:
        parser.error(f"--only matches none of: {', '.join(c.name for c in (*GRAPHS, *STEPS))}")
    if args.threads:
        torch.set_num_threads(args.threads)
    results = []
    for case in chosen:
        run = race_graph if isinstance(case, GraphCase) else race_steps
        results.append(run(case, args.rounds, args.seconds))
        if not args.json:
            show(results[-1])
    if args.json:
        print(json.dumps({"threads": torch.get_num_threads(), "results": results}, indent=1))


if __name__ == "__main__":
    main()
