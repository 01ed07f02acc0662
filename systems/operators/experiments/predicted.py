"""Predicted and measured time of operators at stated sizes on an H200."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dgbench.lab.experiment import Preset
from dgbench.lab.result_checks import ResultCheck, at_most
from dgbench.runtime.errors import UnsupportedError
from dgbench.systems.operators.predictions.batches import CALLS, GRAPH, whole_batches
from dgbench.systems.operators.predictions.case import DRAW, Family, PredictedCase
from dgbench.systems.operators.predictions.graphs import aggregation, differences, labels, narrow
from dgbench.systems.operators.predictions.samples import (
    cache,
    draws,
    large_graph,
    resident_graph,
    small_graph,
)
from dgbench.systems.operators.predictions.sequences import frames, packed, scans, stale
from dgbench.systems.operators.race import OURS, Call, OperatorCase, OperatorRace, speedups

TOLERANCE = 1e-5
PREDICTED = "predicted for an H200"
RIVALS = ("A2 GE-SpMM-like", "A2 cuSPARSE", "A2 PyG scatter")
NARROW_RIVAL = "A5 cuSPARSE"
BEST = "A1 overlap and exclusive"


@dataclass(frozen=True)
class Prediction:
    """Time of a workload as it was predicted.

    Attributes:
        what: the workload. low, high: microseconds; None where nothing was predicted.
    """

    what: str
    low: float | None = None
    high: float | None = None


HEPTH = "22 K vertices, 84 K entries, 4 x 16, overlap 0.57"
FLICKR = "2.3 M vertices, 3.64 M entries, 8 x 2, overlap 0.53"
NARROW = "200 K vertices, 13.2 M weighted entries"
GDELT = "191 M edges, 12 K roots, 10 x 10"
PREDICTIONS: dict[str, Prediction] = {
    "A1 small": Prediction(HEPTH, 8, 10),
    "A1 small, from memory": Prediction(HEPTH),
    "A1 union": Prediction(FLICKR, 110, 160),
    "A1 union by weights": Prediction(FLICKR, 155, 200),
    BEST: Prediction(FLICKR, 150, 215),
    **{name: Prediction(FLICKR) for name in RIVALS},
    "A4 deterministic": Prediction(FLICKR, 110, 160),
    "A4 atomic": Prediction(FLICKR, 210, 250),
    "A5 1 wide": Prediction(NARROW, 37, 50),
    "A5 1 wide, transposed": Prediction(NARROW, 37, 50),
    NARROW_RIVAL: Prediction(NARROW),
    "A5 2 wide": Prediction(NARROW, 45, 60),
    "A5 4 wide": Prediction(NARROW, 51, 66),
    "A5 8 wide": Prediction(NARROW, 56, 73),
    "A5 16 wide": Prediction(NARROW, 95, 110),
    "B1 rebuild": Prediction("5.2 M entries, 0.23 changed", 35, 60),
    "B1 transfer": Prediction("the same, as a difference"),
    "B1 plain transfer": Prediction("the same, whole"),
    "C1 one hop": Prediction("672 K edges, 1800 roots, 10 recent", 8, 8),
    "C1 two hops": Prediction(f"{GDELT} recent", 45, 45),
    "C2 fences, recent": Prediction(f"{GDELT}, records mapped", 900, 900),
    "C2 fences, uniform": Prediction(f"{GDELT}, records mapped", 3000, 3000),
    "C2 search over the link": Prediction(f"{GDELT} recent, records mapped", 3500, 5000),
    "C3": Prediction("100 K edges both ways into 672 K", 35, 70),
    "C3 on the device": Prediction("100 K edges both ways into 10 M, by kernels alone", 45, 80),
    "C3 on the device, sent": Prediction("the same, from page-locked memory", 90, 130),
    GRAPH: Prediction("600 events into 10 M, 10 x 10 uniform, 137 K vertices' memory", 250, 340),
    CALLS: Prediction("the same, launched from the host", 260, 420),
    "D1 all hits": Prediction("198 K rows of 744 B", 75, 80),
    "D1 30 % misses": Prediction("198 K rows of 744 B", 950, 1100),
    "D1 evict": Prediction("59 K of 574 K by age", 12, 12),
    "E1 half of 1e6": Prediction("by weight", 20, 20),
    "E1 half of 1e8": Prediction("by weight", 700, 700),
    "E1 frontier draw": Prediction("10 K slots, 100 at once", 1.25, 1.25),
    "F1": Prediction("43 M vertex-steps, 27 M edges, a sweep", 800, 1000),
    "G1 eager": Prediction("170 vertices, 16 steps, H 32, a training step", 8000, 8000),
    "G1 graph": Prediction("the same", 1200, 1200),
    "G1 fused": Prediction("the same", 55, 55),
    "G2 fp32 tile": Prediction("289 x 149 K, H 32, forward, gates kept", 15_000, 15_000),
    "G2 3xTF32": Prediction("the same", 11_500, 15_000),
    "G3 6 wide, float32": Prediction("170 x 16, F 16, H 6, forward and backward", 45, 60),
    "G3 6 wide, 3xTF32": Prediction("the same", 22, 30),
    "G3 32 wide, float32": Prediction("170 x 16, F 16, H 32, forward and backward", 65, 85),
    "G3 32 wide, 3xTF32": Prediction("the same", 30, 42),
    "G4, float32": Prediction("289 x 18.6 K, H 32, forward and backward", 21_000, 30_000),
    "G4, 3xTF32": Prediction("the same", 9500, 13_000),
    "H1 distances": Prediction("1e7 x 64", 1250, 1250),
    "H1 pack 20 %": Prediction("1e7 x 64", 400, 400),
}
FAMILIES: dict[str, Family] = {
    "frames": frames,
    "scans": scans,
    "aggregation": aggregation,
    "narrow": narrow,
    "differences": differences,
    "small graph": small_graph,
    "resident graph": resident_graph,
    "whole batches": whole_batches,
    "cache": cache,
    "draws": draws,
    "labels": labels,
    "stale rows": stale,
    "packed": packed,
    "large graph": large_graph,
}
"""Families of workloads, the cheapest first."""
GAINS: dict[str, tuple[tuple[str, tuple[str, ...]], ...]] = {
    "aggregation": ((BEST, RIVALS),),
    "narrow": (("A5 1 wide", (NARROW_RIVAL,)),),
    "differences": (("B1 transfer", ("B1 plain transfer",)),),
    "scans": (
        ("G3 6 wide, 3xTF32", ("G3 6 wide, float32",)),
        ("G3 32 wide, 3xTF32", ("G3 32 wide, float32",)),
        ("G4, 3xTF32", ("G4, float32",)),
    ),
    "packed": (("G2 3xTF32", ("G2 fp32 tile",)),),
    "whole batches": ((GRAPH, (CALLS,)),),
}
"""Family -> (workload, those that it is raced with)."""
EXPECTED_GAINS = {
    "A2 GE-SpMM-like": (6.0, 9.0),
    "A2 cuSPARSE": (3.0, 6.0),
    "A2 PyG scatter": (5.0, 8.0),
    NARROW_RIVAL: (0.75, 1.0),
    "B1 plain transfer": (2.6, 2.6),
    "G2 fp32 tile": (3.0, 4.0),
    "G3 6 wide, float32": (1.7, 2.2),
    "G3 32 wide, float32": (1.8, 2.4),
    "G4, float32": (1.9, 2.6),
    CALLS: (1.0, 1.4),
}
"""Baseline -> gain over it as it was predicted."""
NO_FORM = {
    "aggregation": {"A3": "no kernel here exchanges indices by shuffles"},
    "differences": {"B1 CUB chain": "no form by mask, select and merge is kept"},
    "large graph": {"C1 thread per slot": "a search serves all slots of a root"},
}
"""Family -> predictions of what there is no form of, with the reasons."""


class Predicted(OperatorRace):
    name = "predicted"
    title = "Operators at stated sizes, against their predictions"
    question = "Which operators take as long on a device as was predicted for an H200?"
    reading = (
        "Sizes, and times or gains, were stated before anything was measured, for an H200. A value "
        "above 1 is faster than the upper end of a prediction. Graphs are drawn by counts and "
        "power laws. Results are compared on a 500th of the sizes, with float64 or with the CPU."
    )
    devices = ("cuda",)
    alone = True
    rivals = "predicted"
    slow_s = 60.0
    timeout_s = {"smoke": 60, None: 540}
    turns = {"smoke": 2, "quick": 5, None: 15}
    limit_s = {"smoke": 0.0, None: 10.0}
    workloads = {
        preset: tuple({"case": family, "scale": scale} for family in FAMILIES)
        for preset, scale in {"smoke": DRAW, None: 1.0}.items()
    }
    label = "{case}"

    def case(self, params: Mapping[str, Any], preset: Preset, device: str) -> OperatorCase:
        family, share = FAMILIES[params["case"]], params["scale"]
        drawn = {self.method(name): one for name, one in family(DRAW, device)}
        made = drawn
        if share != DRAW:
            made = {self.method(name): one for name, one in family(share, device)}
        if not made:
            raise UnsupportedError(f"no workload of '{params['case']}' runs here")

        def check(name: str, _: int, __: Any) -> ResultCheck:
            return at_most(
                "outputs", drawn[name].deviation(), TOLERANCE, compared=1,
                against="float64, or the CPU, on a draw of the sizes",
            )  # fmt: skip

        calls: dict[str, Call] = {name: lambda _, one=one: one.run() for name, one in made.items()}
        return OperatorCase(
            calls=calls,
            check=check,
            baselines=tuple(
                (self.method(name), tuple(map(self.method, others)))
                for name, others in GAINS.get(params["case"], ())
            ) or ((OURS, ()),),
            left_out=NO_FORM.get(params["case"], {}),
            bars=tuple(self._bars(made)),
            before={name: one.before for name, one in made.items() if one.before is not None},
            warm=tuple(name for name, one in made.items() if one.warm),
            observe=tuple(self._expected(made)),
        )  # fmt: skip

    def answer(self, rows: Sequence[Any]) -> str:
        ratios = {
            (params, method): ratio.value
            for (params, method, bar), ratio in speedups(rows, self.name).items()
            if bar == PREDICTED
        }
        if not ratios:
            return ""
        kept = sum(value >= 1 for value in ratios.values())
        return f"{kept} of {len(ratios)} workloads take no longer than was predicted."

    @staticmethod
    def method(name: str) -> str:
        """Name of a method: ours, unless it is a rival's."""
        return name if name in (*RIVALS, NARROW_RIVAL) else f"{OURS}, {name}"

    def _bars(self, made: Mapping[str, PredictedCase]) -> list[tuple[str, str, float]]:
        """Upper ends of predictions, for whole calls."""
        return [
            (method, PREDICTED, 1e-6 * high * made[method].per)
            for name, one in PREDICTIONS.items()
            if (method := self.method(name)) in made and (high := one.high) is not None
        ]

    def _expected(
        self, made: Mapping[str, PredictedCase]
    ) -> list[tuple[str, float, dict[str, Any]]]:
        """Predicted times of calls and gains, with both ends."""
        found: list[tuple[str, float, dict[str, Any]]] = []
        for name, one in PREDICTIONS.items():
            method = self.method(name)
            if method in made and one.low is not None and one.high is not None:
                low, high = (1e-6 * end * made[method].per for end in (one.low, one.high))
                ends = {"low": low, "high": high}
                found.append(("predicted_time", (low + high) / 2, {"method": method, **ends}))
        for name, (low, high) in EXPECTED_GAINS.items():
            baseline = self.method(name)
            if baseline in made:
                ends = {"baseline": baseline, "low": low, "high": high}
                found.append(("estimate", (low + high) / 2, ends))
        return found
