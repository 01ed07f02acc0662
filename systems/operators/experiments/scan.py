"""Recurrences over a frame, forward and backward: fused scans against loops and torch.nn.LSTM."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from dgbench.kernels_cuda.scan import (
    CONTINUES,
    FROM_ZERO,
    gru_scan,
    lstm_scan,
    packed_gru_scan,
    packed_lstm_scan,
)
from dgbench.kernels_cuda.scan.products import SPLIT, splits
from dgbench.lab.experiment import Preset
from dgbench.lab.result_checks import close
from dgbench.systems.operators.race import OURS, OperatorCase, OperatorRace
from dgbench.systems.operators.recurrences import (
    GATES,
    LOOPS,
    PackedSteps,
    StepLayout,
    library_lstm,
    output_and_gradients,
    random_lengths,
    random_weights,
)

TOLERANCE, PEER_TOLERANCE = 1e-5, 1e-4
"""Relative deviation from float64. The library's LSTM on the CPU comes close to 2e-5."""
LOOP, LSTM, PACKED = "torch loop", "torch.nn.LSTM", "PackedSequence"
ZEROS = f"{OURS}, zeros"
TENSOR_CORES = f"{OURS}, {SPLIT}"
"""Ours with products split for tensor cores, where a device has them; raced with ours alone."""
SCANS = {"gru": gru_scan, "lstm": lstm_scan}
AGAINST = "float64 loop of torch"


def frame(
    cell: str, vertices: int, features: int, hidden: int = 32, first: bool = False,
    all_steps: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Params of a frame of 16 steps. `first`: a model's first layer, whose x needs no gradient."""
    return {
        "cell": cell, "vertices": vertices, "features": features, "hidden": hidden, "steps": 16,
        "first": first, "all_steps": all_steps,
    }  # fmt: skip


def packed(
    cell: str, sequences: int, mean: int, longest: int, features: int = 64
) -> dict[str, Any]:
    """Params of sequences with exponential lengths."""
    return {
        "cell": cell, "sequences": sequences, "mean": mean, "longest": longest,
        "features": features, "hidden": 32,
    }  # fmt: skip


class Scan(OperatorRace):
    name = "scan"
    title = "A recurrence over 16 steps, forward and backward"
    question = "How fast are the fused recurrences, against a loop and torch's own layer?"
    reading = (
        "The loop multiplies the inputs of all steps at once and then steps through the hidden "
        "part. torch.nn.LSTM is the library's fused layer; torch has no such GRU. On a device the "
        "layer is cuDNN's, in single precision without tensor cores for all; 3xtf32 is ours with "
        "products split for them, about as exact."
    )
    claims = ("operators-scan-best-peer",)
    devices = ("cpu", "cuda")
    workloads = {
        "smoke": (frame("gru", 64, 8, first=True), frame("lstm", 64, 8)),
        "quick": (
            frame("gru", 2000, 16, first=True),
            frame("lstm", 2000, 32),
            frame("gru", 170, 16, first=True),
        ),
        None: (
            frame("gru", 20_000, 16, first=True),
            frame("lstm", 20_000, 64, all_steps=True),
            frame("lstm", 20_000, 32),
            frame("gru", 170, 16, first=True),
            frame("gru", 129, 16, first=True),
            frame("lstm", 170, 32),
        ),
    }
    label = "{cell} {features} to {hidden}, {vertices} vertices"

    def case(self, params: Mapping[str, Any], preset: Preset, device: str) -> OperatorCase:
        cell, steps, vertices = params["cell"], params["steps"], params["vertices"]
        features, hidden, all_steps = params["features"], params["hidden"], params["all_steps"]
        generator = torch.Generator().manual_seed(11)
        x = torch.randn(steps, vertices, features, generator=generator)
        inputs = [x, *random_weights(cell, features, hidden, generator)]

        def fused(given: list[Tensor], products: str | None = None) -> Tensor:
            h_all, h_last, *_ = SCANS[cell](*given, all_steps=all_steps, products=products)
            return h_all if all_steps else h_last

        def loop(given: list[Tensor]) -> Tensor:
            states = LOOPS[cell](*given, given[0].new_zeros(vertices, hidden))
            return torch.stack(states) if all_steps else states[-1]

        runs: dict[str, Callable[[list[Tensor]], Tensor]] = {OURS: fused, LOOP: loop}
        if cell == "lstm":
            layer = library_lstm(features, hidden, device)

            def library(given: list[Tensor]) -> Tensor:
                h_all, (h_last, _) = layer(given[1:], given[0])
                return h_all if all_steps else h_last[0]

            runs[LSTM] = library
        peers = tuple(runs)[1:]
        wanted = range(1 if params["first"] else 0, len(inputs))
        exact = output_and_gradients(loop, [one.double() for one in inputs], wanted=wanted)
        inputs = [one.to(device) for one in inputs]
        if splits(inputs[0], inputs[2]):
            runs[TENSOR_CORES] = partial(fused, products=SPLIT)
        passes = (2 if params["first"] else 3) * features + 3 * hidden
        return OperatorCase(
            calls={
                name: lambda _, run=run: output_and_gradients(run, inputs, wanted=wanted)
                for name, run in runs.items()
            },
            check=lambda name, _, found: close(
                "outputs", found, exact, _tolerance(name), against=AGAINST
            ),
            baselines=_baselines(peers),
            work=(("product_rate", {}, 2.0 * steps * vertices * GATES[cell] * hidden * passes),),
        )


class PackedScan(OperatorRace):
    name = "packed_scan"
    title = "A recurrence over sequences of many lengths"
    question = "What does packing several sequences into a row save, against padding with zeros?"
    reading = (
        "Padding runs our scan and torch.nn.LSTM over every sequence as long as the longest; a "
        "PackedSequence leaves padding out as well. Making the layouts is not timed."
    )
    claims = (
        "operators-packed-scan-zeros",
        "operators-packed-scan-lstm",
        "operators-packed-scan-packed-sequence",
    )
    devices = ("cpu", "cuda")
    workloads = {
        "smoke": (packed("lstm", 40, 3, 12, 8), packed("gru", 40, 3, 12, 8)),
        "quick": (packed("lstm", 500, 8, 60), packed("gru", 500, 8, 60, 32)),
        None: (
            packed("lstm", 2000, 8, 60),
            packed("lstm", 8000, 3, 20),
            packed("lstm", 800, 40, 60, 32),
            packed("gru", 2000, 8, 60, 32),
        ),
    }
    label = "{cell}, mean {mean} of {longest} steps"

    def case(self, params: Mapping[str, Any], preset: Preset, device: str) -> OperatorCase:
        cell, features, hidden = params["cell"], params["features"], params["hidden"]
        lengths = random_lengths(params["sequences"], params["mean"], params["longest"], seed=5)
        # The longest first, as `PackedSequence` wants them.
        steps = PackedSteps.of(lengths.sort(descending=True).values, int(lengths.max()))
        total = len(steps.number)
        generator = torch.Generator().manual_seed(11)
        x = torch.randn(total, features, generator=generator)
        grad = torch.randn(total, hidden, generator=generator) / total
        weights = random_weights(cell, features, hidden, generator)
        runs = self._runs(cell, features, hidden, steps, device)

        def passes(name: str, dtype: torch.dtype, place: str) -> Callable[[], list[Tensor]]:
            run, layout = runs[name]
            inputs = [layout.spread(x.to(dtype)), *(w.to(dtype) for w in weights)]
            inputs = [one.to(place) for one in inputs]
            down = layout.spread(grad.to(dtype)).to(place)
            return lambda: output_and_gradients(run, inputs, down)

        def in_order(name: str, found: list[Tensor]) -> list[Tensor]:
            own = [one.cpu() for one in found]
            return [*map(runs[name][1].gather, own[:2]), *own[2:]]

        exact = in_order(LOOP, passes(LOOP, torch.float64, "cpu")())
        calls = {name: passes(name, torch.float32, device) for name in runs}
        per_step = 6.0 * GATES[cell] * hidden * (features + hidden)
        return OperatorCase(
            calls={name: lambda _, call=call: call() for name, call in calls.items()},
            check=lambda name, _, found: close(
                "outputs", in_order(name, found), exact, _tolerance(name), against=AGAINST
            ),
            baselines=_baselines([name for name in runs if name not in (OURS, TENSOR_CORES)]),
            work=(("product_rate", {}, per_step * total),),
        )

    def _runs(
        self, cell: str, features: int, hidden: int, steps: PackedSteps, device: str
    ) -> dict[str, tuple[Callable[[list[Tensor]], Tensor], StepLayout]]:
        """Contenders: from [x, w_in, w_hid, bias] to states, and where they keep the steps."""
        longest, count = steps.shape[0], len(steps.lengths)
        begins = torch.full(steps.shape, CONTINUES, dtype=torch.int32)
        begins[steps.start, steps.row] = FROM_ZERO
        begins[steps.free] = FROM_ZERO
        begins = begins.to(device)
        zeros = StepLayout((longest, count), steps.padded)

        def fused(given: list[Tensor], products: str | None = None) -> Tensor:
            if cell == "gru":
                return packed_gru_scan(*given, begins, products=products)
            return packed_lstm_scan(*given, begins, products=products)[0]

        def loop(given: list[Tensor]) -> Tensor:
            return torch.stack(LOOPS[cell](*given, given[0].new_zeros(count, hidden)))

        runs: dict[str, tuple[Callable[[list[Tensor]], Tensor], StepLayout]] = {
            OURS: (fused, StepLayout(steps.shape, steps.packed)),
            ZEROS: (lambda given: SCANS[cell](*given, all_steps=True)[0], zeros),
            LOOP: (loop, zeros),
        }
        w_hid = torch.empty(hidden, GATES[cell] * hidden, device=device)
        if splits(torch.empty(longest, 1, features, device=device), w_hid):
            runs[TENSOR_CORES] = (partial(fused, products=SPLIT), runs[OURS][1])
        if cell == "lstm":
            layer = library_lstm(features, hidden, device)
            sizes = (steps.lengths > torch.arange(longest).unsqueeze(1)).sum(1)
            before = sizes.cumsum(0) - sizes
            runs[LSTM] = (lambda given: layer(given[1:], given[0])[0], zeros)
            runs[PACKED] = (
                lambda given: layer(given[1:], PackedSequence(given[0], sizes))[0].data,
                StepLayout((len(steps.number),), before[steps.step] + steps.number),
            )
        return runs


def _baselines(peers: Sequence[str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Ours over peers, and its form on tensor cores over its plain one."""
    return ((OURS, tuple(peers)), (TENSOR_CORES, (OURS,)))


def _tolerance(name: str) -> float:
    return TOLERANCE if name.startswith(OURS) else PEER_TOLERANCE
