"""Invented points for every kind of figure, as options and points; the numbers mean nothing."""

from __future__ import annotations

from itertools import product
from typing import Any

MODELS = ("T-GCN model", "EvolveGCN", "MPNN-LSTM")
DATASETS = ("Covid19-England", "PEMS08", "HepTh", "Epinions", "Flickr", "Youtube")
TWINS = ("HepTh", "Epinions", "Flickr", "Youtube")
Points = list[dict[str, Any]]


def spread(key: str, value: float, share: float = 0.07) -> dict[str, float]:
    """A value with its interval."""
    return {key: value, "low": value * (1 - share), "high": value * (1 + share)}


def numbered(*keys: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Every combination, with a number that grows before it."""
    return [(1.0 + n / 7, *some) for n, some in enumerate(product(*keys))]


def lost(point: dict[str, Any], why: str, **more: Any) -> dict[str, Any]:
    """The point of what has no number."""
    return {**point, "failed": why, **more}


def speedup_points() -> Points:
    return [
        lost(p, "oom: 21.9 of 24.0 GiB", failed_system="pygt") if v > 5.5
        else {**p, **spread("value", v), "n": 5, "deviation": 3e-7, "paper": 1.5 * v}
        for v, model, dataset, system in numbered(MODELS, DATASETS, ("pygt-g", "pipad"))
        for p in [{"panel": model, "row": dataset, "system": system, "baseline": "pygt",
                   "twin": dataset in TWINS, "row_ids": [f"{model[:2]}{dataset[:2]}"]}]
    ]  # fmt: skip


def split_points() -> Points:
    places = zip(MODELS, DATASETS[1:], strict=False)
    return [
        {"panel": panel, "row": row, "system": system, "phase": phase,
         "seconds": share * v / 50, "total": v / 50, "slowdown": 0.02}
        for v, (panel, row), system in numbered(places, ("pygt", "pygt-g", "pipad"))
        for phase, share in (("transfer", 0.3), ("compute", 0.5), ("update", 0.08))
        if system != "pygt-g" or panel != MODELS[1]
    ] + [
        lost({"panel": MODELS[1], "row": "HepTh", "system": "pygt-g"}, "crash: signal 11")
    ]  # fmt: skip


def ablation_points() -> Points:
    points: Points = []
    for panel in ("T-GCN model, HepTh (twin)", "MPNN-LSTM, HepTh (twin)"):
        seconds = 0.041
        points.append({"panel": panel, "step": 0, "technique": "", "seconds": seconds})
        for step, gain in enumerate((2.4, 1.01, 1.4, 1.8), 1):
            name = ("parallel_aggregation", "dimension_aware", "reuse", "stale_halo")[step - 1]
            seconds, exact = seconds / gain, name != "stale_halo"
            point = {"panel": panel, "step": step, "technique": name, "twin": True}
            points.append({
                **point, **spread("seconds", seconds), "gain": gain, "alone": gain, "exact": exact,
                "removed": gain**0.7, "quality": "" if exact else "AP −0.4",
            })  # fmt: skip
    points[-1] = lost(point, "check: loss differs by 0.1")
    return points


def sweep_points() -> Points:
    return [
        lost({"panel": "aggregation", "series": series, "x": x}, "oom: 24 GiB") if v > 2.5
        else {"panel": "aggregation", "series": series, "x": x, **spread("y", v * x**0.9)}
        for v, series, x in numbered(("pipad", "pygt"), (2, 6, 16, 32, 64, 128))
    ]  # fmt: skip


def limit_points() -> Points:
    copy = {"limit": 30.4, "limit_name": "copy bandwidth", "unit": "GB/s"}
    return [
        {"row": "aggregate, F = 2", "system": "pipad", "value": 9.1, **copy},
        {"row": "aggregate, F = 32", "system": "pygt", "value": 35.0, **copy},
        {"row": "GRU", "system": "pipad", "value": 61.0, "limit": 154.0,
         "limit_name": "matrix rate", "unit": "GFLOP/s"},
        {"row": "LSTM", "system": "pygt", "failed": "not-built: no nvcc"},
    ]  # fmt: skip


def versus_points() -> Points:
    return [
        {"claim": f"toy-{v}", "paper": v, **spread("measured", v * share, 0.1),
         "projected": share > 1, "strength": strength}
        for v, share, strength in numbered((0.3, 0.8, 1.0, 1.2), ("weak", "strong"))
    ] + [{"claim": "toy-x", "failed": "not-supported: no GPU"}]  # fmt: skip


def cell_points() -> Points:
    return [
        lost(p, "not-supported: too wide") if system == "pygt" and dataset == "Youtube"
        else {**p, "seconds": v / 100}
        for v, model, dataset, system in numbered(MODELS[:2], DATASETS, ("pygt", "pygt-g", "pipad"))
        for p in [{"system": system, "dataset": dataset, "model": model}]
    ]  # fmt: skip


def board_points() -> Points:
    return [
        {"paper": paper, "title": paper.title(), "claim": f"{paper}-{v}", "glyph": glyph}
        for v, paper, glyph in numbered(("toy", "other"), "RRddXSSsssOuv=----")
    ]


def scaling_points() -> Points:
    points: Points = []
    for base, panel, series in numbered(("one", "two"), ("esdg", "pygt, snapshots dealt")):
        place = {"panel": panel, "series": series, "twin": True}
        points += [{**place, "x": x, **spread("y", base * x**0.75)} for x in (1, 2, 4)]
        points += [{**place, "x": x, **spread("y", base * x**0.8), "projected": True,
                    "model_error": 0.1, "model_error_on": "here"} for x in (1, 8, 64)]  # fmt: skip
    points += [{**place, "series": "esdg", "x": x, "y": x**0.7, "paper": True} for x in (8, 32)]
    return [*points, lost({**place, "x": 4}, "time: more than 60 s")]


def correctness_points() -> Points:
    return [
        {"panel": panel, "system": system, **spread("seconds", v / 100), "recall": 2 - v**0.01,
         "leaks": 0.0, "duplicates": None, "repeats": 1.0, "row_ids": ["a"]}
        for v, panel, system in numbered(("1 hop", "2 hops"), ("gnnflow", "tgl", "another, 1.2"))
    ] + [lost({"panel": "2 hops", "system": "pygt"}, "not-supported: it cannot")]  # fmt: skip


def curve_points() -> Points:
    return [
        {"panel": "T-GCN model", "series": name, "x": x, "seed": seed, "target": 0.85,
         "y": 0.9 - 0.4 * 0.9**x + seed / 100,
         **({"reference": True} if name == "reference" else {"seconds": 0.5 * x})}
        for name, seed, x in product(("reference", "dgc", "pygt"), range(3), range(1, 41))
        if name != "reference" or not seed
    ] + [{"panel": "T-GCN model", "series": "pygt-g", "failed": "oom: 24 GiB"}]  # fmt: skip


def course_points() -> Points:
    """Two processes on a GPU; the second loses a counter half way and has no phases."""
    points: Points = []
    for length, system in ((4.1, "pipad"), (9.7, "pygt")):
        place: dict[str, Any] = {"panel": system, "system": system, "row_ids": [system]}
        seconds = [i * 0.1 for i in range(int(length / 0.1))]
        low: list[Any] = [90.0 + i % 9 for i in range(len(seconds))]
        high: list[Any] = [v + 5 for v in low]
        points.append({**place, "row": "gpu_power", "length": length, "step": 0.1, "unit": "W",
                       "seconds": seconds, "low": low, "high": high, "limit": 300.0})  # fmt: skip
        points.append(lost({**place, "row": "gpm_sm_active"}, "not-supported: no Hopper"))
    points[-2]["ended"] = "not offered: GPU is lost"
    low[48:] = high[48:] = [None] * len(low[48:])
    points.append(lost({**place, "row": "phases"}, "skipped: no instruments"))
    place = {"panel": "pipad", "system": "pipad", "row_ids": ["pipad"], "length": 4.1}
    return [
        *points,
        {**place, "row": "phases", "series": "compute", "merged": 0, "resolution": 0.0,
         "begin": [0.0, 1.0], "end": [0.5, 1.7]},
        {**place, "row": "marks", "series": "epoch", "every": 1, "seconds": [1.0, 2.0, 3.0]},
    ]  # fmt: skip


def frontier_points() -> Points:
    return [
        lost(p, "oom: 102 of 92 MiB") if (series, blocks) == ("pygt", 1)
        else {**p, "memory": v * 2e7 * (0.3 + 1.4 / blocks), **spread("rate", v * (9 - blocks))}
        for v, panel, series, blocks in numbered(MODELS[:2], ("esdg", "pygt"), (1, 2, 4))
        for p in [{"panel": panel, "series": series, "setting": f"{blocks} blocks", "limit": 96e6,
                   "limit_name": "device, 92 MiB", "base": blocks == 1}]
    ]  # fmt: skip


def change_points() -> Points:
    return [
        {"row": f"fig10 {n}", "word": word, "n": 5,
         **spread("value", {"SLOW": 1.3 + n, "FAST": 0.6, "AMBG": 1.1}.get(word, 1.0), 0.02)}
        for n, word in enumerate(("SLOW", "SLOW", "FAST", "AMBG") + ("SAME",) * 20)
    ] + [
        {"row": "fig10 Youtube", "word": "AMBG", "failed": "oom: only A has a value"},
        {"row": "step", "word": "AMBG", "value": 1.1, "fold": True, "n": 1},
        {"row": "3 cells", "word": "AMBG", "failed": "only in B"},
    ]  # fmt: skip


def across_points() -> Points:
    return [
        {**p, "series": series, **{k: scale * p[k] for k in ("value", "low", "high") if k in p}}
        for series, scale in (("2 cores, Xeon (invented)", 1.0), ("H200 (invented)", 2.6))
        for p in speedup_points()
        if p["system"] == "pipad" and (series[0] == "2" or p["row"] != "PEMS08")
    ]  # fmt: skip


def use_of_device_points() -> Points:
    counters = (("rate", "edges/s", 1e6, None), ("SM active", "%", 15.0, 100.0),
                ("memory, peak", "GiB", 40, None), ("tensor active", "%", 0.005, 100))  # fmt: skip
    return [
        {"row": row, "system": "pipad", "counter": counter, "value": v / 9 * most, "unit": unit,
         "limit": limit}
        for v, row, (counter, unit, most, limit) in numbered(DATASETS[:4], counters)
    ] + [
        lost({"row": row, "system": "pipad", "counter": "NVLink in", "offered": False},
             "not-supported: not offered: Not Supported") for row in DATASETS[:4]
    ]  # fmt: skip


POINTS = {
    "device_use": (use_of_device_points, {}),
    "changes": (change_points, {"a": "0a1b2c3d", "b": "4e5f6a7b"}),
    "across": (across_points, {"baseline_label": "PyGT, released 0.56.2"}),
    "speedup": (speedup_points, {"baseline_label": "PyGT, released 0.56.2"}),
    "time_split": (split_points, {}),
    "ablation": (ablation_points, {"system": "pipad"}),
    "sweep": (sweep_points, {"xlabel": "feature dimension F", "ylabel": "time, ms", "base": 2}),
    "limit_share": (limit_points, {}),
    "paper_vs_measured": (versus_points, {}),
    "failed_cells": (cell_points, {}),
    "claim_board": (board_points, {}),
    "frontier": (frontier_points, {"ylabel": "snapshots/s"}),
    "over_time": (course_points, {"workload": "HepTh (twin), T-GCN model"}),
    "scaling": (scaling_points, {"topology": "16 nodes of 8 GPUs", "most": 128, "here": "ranks"}),
    "correctness": (correctness_points, {"columns": ("recall", "leaks", "duplicates", "repeats")}),
    "curves": (curve_points, {"ylabel": "accuracy", "target_label": "85 %", "start": "same seed"}),
}
