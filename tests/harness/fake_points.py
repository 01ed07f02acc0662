"""Invented points for every kind of figure.

The numbers are drawn from a seeded generator and mean nothing.
"""

from __future__ import annotations

import random
from itertools import product
from typing import Any

MODELS = ("T-GCN model", "EvolveGCN", "MPNN-LSTM")
DATASETS = ("Covid19-England", "PEMS08", "HepTh", "Epinions", "Flickr", "Youtube")
TWINS = ("HepTh", "Epinions", "Flickr", "Youtube")
Points = list[dict[str, Any]]


def spread(key: str, value: float, below: float = 0.07, above: float = 0.08) -> dict[str, float]:
    """A value with its interval."""
    return {key: value, "low": value * (1 - below), "high": value * (1 + above)}


def speedup_points() -> Points:
    rng, points = random.Random(1), []
    failing = {("MPNN-LSTM", "Youtube"): ("oom: 21.9 of 24.0 GiB", ""),
               ("EvolveGCN", "Flickr"): ("time: more than 60 s", "pygt")}  # fmt: skip
    for model, dataset, system in product(MODELS, DATASETS, ("pygt-g", "pipad")):
        point = {"panel": model, "row": dataset, "system": system, "baseline": "pygt",
                 "twin": dataset in TWINS, "row_ids": [f"{model[:2]}{dataset[:2]}"]}  # fmt: skip
        value = (1.3 if system == "pygt-g" else 3.5) * rng.uniform(0.6, 2.0)
        if (dataset, model) == ("Covid19-England", "EvolveGCN"):
            value = 1.01
        if (model, dataset) in failing:
            why, culprit = failing[model, dataset]
            points.append({**point, "failed": why, "failed_system": culprit or system})
        else:
            paper = {"paper": value * rng.uniform(0.7, 1.9)} if system == "pipad" else {}
            points.append({**point, **spread("value", value), "n": 5, "deviation": 3e-7, **paper})
    return points


def split_points() -> Points:
    points = []
    systems = (("pygt", 0.043), ("pygt-g", 0.028), ("pipad", 0.009))
    places = (("T-GCN model", "HepTh"), ("EvolveGCN", "PEMS08"))
    for (panel, dataset), (system, total) in product(places, systems):
        where = {"panel": panel, "row": dataset, "system": system, "twin": dataset == "HepTh"}
        if (system, dataset) == ("pygt-g", "PEMS08"):
            points.append({**where, "failed": "crash: signal 11", "failed_system": system})
            continue
        points += [
            {**where, "phase": phase, "seconds": share * total, "total": total, "slowdown": 0.02}
            for phase, share in (("transfer", 0.3), ("compute", 0.5), ("update", 0.08))
        ]
    return points


def ablation_points() -> Points:
    gains = {"parallel_aggregation": 2.4, "dimension_aware": 1.01, "weight_reuse": 1.4,
             "reuse": 1.8, "stale_halo": 1.2}  # fmt: skip
    points: Points = []
    for panel in ("T-GCN model, HepTh (twin)", "MPNN-LSTM, HepTh (twin)"):
        seconds = 0.041
        points.append({"panel": panel, "step": 0, "technique": "", "seconds": seconds})
        for step, (name, gain) in enumerate(gains.items(), 1):
            seconds /= gain
            point = {"panel": panel, "step": step, "technique": name, "twin": True}
            if panel.startswith("MPNN") and name == "stale_halo":
                points.append({**point, "failed": "check: loss differs by 0.1"})
                continue
            exact, alone = name != "stale_halo", gain**0.8
            points.append({
                **point, **spread("seconds", seconds), "gain": gain, "alone": alone,
                "alone_low": alone * 0.95, "alone_high": alone * 1.06, "removed": gain**0.7,
                "exact": exact, "quality": "" if exact else "AP −0.4",
            })  # fmt: skip
    return points


def sweep_points() -> Points:
    return [
        {"panel": "aggregation", "series": series, "x": x,
         **({"failed": "oom: 24 GiB"} if (series, x) == ("pygt", 128)
            else spread("y", scale * x**0.9))}
        for series, scale in (("pipad", 1.0), ("pygt", 3.0), ("pygt-g", 1.9))
        for x in (2, 6, 16, 32, 64, 128)
    ]  # fmt: skip


def limit_points() -> Points:
    copy = {"limit": 30.4, "limit_name": "copy bandwidth", "unit": "GB/s"}
    return [
        {"row": "aggregate, F = 2", "system": "pipad", "value": 9.1, **copy},
        {"row": "aggregate, F = 32", "system": "pipad", "value": 21.6, **copy},
        {"row": "aggregate, F = 32", "system": "pygt", "value": 35.0, **copy},
        {"row": "GRU", "system": "pipad", "value": 61.0, "limit": 154.0,
         "limit_name": "matrix rate", "unit": "GFLOP/s"},
        {"row": "LSTM", "system": "pygt", "failed": "not-built: no nvcc"},
    ]  # fmt: skip


def versus_points() -> Points:
    rng, points = random.Random(3), []
    for i in range(14):
        paper = rng.uniform(1.1, 9)
        measured = spread("measured", paper * rng.choice((0.3, 0.8, 1.0, 1.2, 0.7)), 0.1, 0.1)
        points.append({"claim": f"toy-{i}", "paper": paper, **measured, "projected": i % 5 == 4,
                       "strength": ("weak", "strong")[i % 2]})  # fmt: skip
    return [*points, {"claim": "toy-x", "failed": "not-supported: no GPU"}]


def cell_points() -> Points:
    rng, points = random.Random(5), []
    failing = {"Flickr": "oom: 24 GiB", "Youtube": "not-supported: too wide"}
    systems = ("pygt", "pygt-a", "pygt-r", "pygt-g", "pipad")
    for model, dataset, system in product(MODELS[:2], DATASETS, systems):
        point = {"system": system, "dataset": dataset, "model": model, "twin": dataset in TWINS}
        if system == "pygt" and dataset in failing:
            points.append({**point, "failed": failing[dataset]})
        else:
            points.append({**point, "seconds": rng.uniform(0.004, 2.0)})
    return points


def board_points() -> Points:
    rng = random.Random(7)
    return [
        {"paper": paper, "title": paper.title(), "claim": f"{paper}-{i}", "twin": i % 3 == 0,
         "glyph": rng.choice("RRddXSSsssOuv=----")}
        for paper, count in (("toy", 85), ("other", 67)) for i in range(count)
    ]  # fmt: skip


def scaling_points() -> Points:
    points: Points = []
    for panel, slope in (("T-GCN model, HepTh", 0.82), ("EvolveGCN, HepTh", 0.93)):
        where = {"panel": panel, "twin": True}
        for series, base in (("esdg", 1.0), ("pygt, snapshots dealt", 0.8)):
            place = {**where, "series": series}
            points += [{**place, "x": x, **spread("y", base * x**0.75)} for x in (1, 2, 4)]
            points += [{**place, "x": 2**n, **spread("y", base * 2 ** (n * slope), 0.2, 0.2),
                        "projected": True, "model_error": 0.17,
                        "model_error_on": "the exchanges here"} for n in range(8)]  # fmt: skip
        points += [{**where, "series": "esdg", "x": x, "y": x**0.7, "paper": True}
                   for x in (8, 32, 128)]  # fmt: skip
        points.append({**where, "series": "pygt, snapshots dealt", "x": 4,
                       "failed": "time: more than 60 s"})  # fmt: skip
    return points


def correctness_points() -> Points:
    points: Points = []
    contenders = (("gnnflow", 0.0041, 1.0, 0.0), ("tgl", 0.0062, 1.0, 0.0),
                  ("another, released 1.2", 0.0019, 0.8732, 0.0004),
                  ("pygt", 0.011, 1.0, 0.0))  # fmt: skip
    for panel, contender in product(("recent, 1 hop", "uniform, 2 hops"), contenders):
        system, seconds, recall, leaks = contender
        point = {"panel": panel, "system": system, "row_ids": ["a"]}
        if (panel, system) == ("uniform, 2 hops", "pygt"):
            points.append({**point, "failed": "not-supported: it cannot"})
            continue
        points.append({**point, **spread("seconds", seconds), "recall": recall, "leaks": leaks,
                       "duplicates": None if system == "pygt" else 0.0,
                       "repeats": 1.0})  # fmt: skip
    return points


def curve_points() -> Points:
    rng = random.Random(9)
    points: Points = []
    series = (("reference", 0.0, 1), ("dgc", 0.8, 3), ("pygt", 1.4, 3))
    for panel in ("T-GCN model, HepTh", "EvolveGCN, HepTh"):
        for name, each, seeds in series:
            points += [
                {"panel": panel, "series": name, "x": x, "seed": seed, "twin": True,
                 "target": 0.85, "y": 0.9 - 0.4 * 0.9**x + rng.uniform(-0.01, 0.01),
                 **({"seconds": each * x} if each else {"reference": True})}
                for seed in range(seeds) for x in range(1, 41)
            ]  # fmt: skip
        points.append({"panel": panel, "series": "pygt-g", "failed": "oom: 24 GiB"})
    return points


def course_points() -> Points:
    """Three processes on a GPU: one loses a counter half way, one has no phases."""
    rng, points = random.Random(13), []
    strips = (("gpu_memory", "MiB", 16384.0, 5000.0), ("gpu_resident", "%", 100.0, 60.0),
              ("gpu_power", "W", 300.0, 180.0))  # fmt: skip
    phases = (("transfer", 0, 0.3), ("compute", 0.3, 0.8), ("update", 0.8, 0.95))
    for system, length, pieces in (("pipad", 4.1, 10), ("pygt-g", 6.3, 315), ("pygt", 9.7, 0)):
        place: dict[str, Any] = {"panel": system, "system": system, "twin": True,
                                 "row_ids": [f"{system}-r1i"]}  # fmt: skip
        seconds = [i * 0.1 for i in range(int(length / 0.1))]
        for row, unit, limit, base in strips:
            low: list[Any] = [base * rng.uniform(0.5, 1.0) for _ in seconds]
            high: list[Any] = [value * rng.uniform(1.0, 1.3) for value in low]
            points.append({**place, "row": row, "length": length, "step": 0.1, "seconds": seconds,
                           "low": low, "high": high, "unit": unit, "limit": limit})  # fmt: skip
            if (system, row) == ("pygt", "gpu_power"):
                points[-1]["ended"] = "not offered: GPU is lost"
                low[48:] = high[48:] = [None] * len(low[48:])
        points.append({**place, "row": "gpm_sm_active",
                       "failed": "not-supported: it needs Hopper or later"})  # fmt: skip
        if not pieces:
            points.append({**place, "row": "phases", "failed": "skipped: no instruments"})
            continue
        each = length / pieces
        points += [
            {**place, "row": "phases", "series": phase, "length": length, "merged": 0,
             "resolution": 0.0, "begin": [(i + first) * each for i in range(pieces)],
             "end": [(i + last) * each for i in range(pieces)]} for phase, first, last in phases
        ]  # fmt: skip
        points.append({**place, "row": "marks", "series": "epoch", "length": length, "every": 1,
                       "seconds": [float(i) for i in range(1, int(length))]})  # fmt: skip
    return points


def frontier_points() -> Points:
    points: Points = []
    panels = (("TM-GCN, HepTh (twin)", 1.0), ("EvolveGCN, PEMS08", 0.2))
    systems = (("esdg", 40e6, 30.0), ("pygt", 90e6, 21.0))
    for (panel, scale), system, blocks in product(panels, systems, (1, 2, 4, 8, 16)):
        series, size, speed = system
        point = {"panel": panel, "series": series, "setting": f"{blocks} blocks",
                 "limit": 96e6 * scale, "limit_name": "device, 92 MiB", "base": blocks == 1,
                 "twin": "twin" in panel}  # fmt: skip
        rate = speed * (1.0 - 0.04 * blocks) * (0.7 if blocks == 4 else 1.0) / scale
        if (series, blocks) == ("pygt", 1):
            points.append({**point, "failed": "oom: 102 of 92 MiB"})
        elif (panel[0], blocks) == ("E", 16):
            points.append({**point, "failed": "crash: signal 11"})
        else:
            memory = size * scale * (0.3 + 1.4 / blocks)
            points.append({**point, "memory": memory, **spread("rate", rate)})
    return points


def change_points() -> Points:
    rng = random.Random(9)
    points: Points = []
    for i, word in enumerate(("SLOW", "SLOW", "FAST", "AMBG") + ("SAME",) * 20):
        value = {"SLOW": 1.3 + i, "FAST": 0.6, "AMBG": 1.1, "SAME": rng.uniform(0.98, 1.02)}[word]
        wide = 0.4 if word == "AMBG" else 0.02
        points.append({"row": f"fig10 {DATASETS[i % 6]} {MODELS[i % 3]} {i}", "word": word, "n": 5,
                       "twin": i % 2 == 0, **spread("value", value, wide, wide)})  # fmt: skip
    return [
        *points,
        {"row": "fig10 Youtube", "word": "AMBG", "failed": "oom: only A has a value", "twin": True},
        {"row": "step", "word": "AMBG", "value": 1.1, "fold": True, "n": 1},
        {"row": "3 cells", "word": "AMBG", "failed": "only in B"},
    ]


def across_points() -> Points:
    return [
        {**p, "series": series, **{k: scale * p[k] for k in ("value", "low", "high") if k in p}}
        for series, scale in (("2 cores, Xeon (invented)", 1.0), ("H200 (invented)", 2.6))
        for p in speedup_points()
        if p["system"] == "pipad" and p["panel"] != "MPNN-LSTM"
        and not (series.startswith("H200") and p["row"] == "PEMS08")
    ]  # fmt: skip


def use_of_device_points() -> Points:
    rng = random.Random(17)
    points: Points = []
    counters = (
        ("rate", "edges/s", 1e6, None), ("SM active", "%", 15.0, 100.0),
        ("kernel resident", "%", 90.0, 100.0), ("memory, peak", "GiB", 40.0, None),
        ("power", "W", 600.0, None), ("tensor active", "%", 0.005, 100.0),
        ("PCIe in", "MB", 900.0, None),
    )  # fmt: skip
    for row in DATASETS[:4]:
        place = {"row": row, "system": "pipad", "twin": row in TWINS, "row_ids": [row[:2]]}
        points += [
            {**place, "counter": counter, "value": rng.uniform(0.1, 1.0) * most, "unit": unit,
             "limit": limit} for counter, unit, most, limit in counters
        ]  # fmt: skip
        points.append({**place, "counter": "NVLink in", "offered": False,
                       "failed": "not-supported: not offered: Not Supported"})  # fmt: skip
        if row == "HepTh":
            points[-2] = {**place, "counter": "PCIe in", "failed": "not-supported: it began again"}
    return points


POINTS = {
    "device_use": (use_of_device_points, {}),
    "changes": (change_points, {"a": "0a1b2c3d", "b": "4e5f6a7b"}),
    "across": (across_points, {"baseline_label": "PyGT, released 0.56.2"}),
    "speedup": (speedup_points, {"baseline_label": "PyGT, released 0.56.2"}),
    "time_split": (split_points, {}),
    "ablation": (ablation_points, {"system": "pipad"}),
    "sweep": (sweep_points, {"xlabel": "feature dimension F", "ylabel": "time, ms", "base": 2,
                             "guide_slope": 1.0}),
    "limit_share": (limit_points, {}),
    "paper_vs_measured": (versus_points, {}),
    "failed_cells": (cell_points, {}),
    "claim_board": (board_points, {}),
    "frontier": (frontier_points, {"ylabel": "snapshots/s"}),
    "over_time": (course_points, {"workload": "HepTh (twin), T-GCN model"}),
    "scaling": (scaling_points, {"topology": "16 nodes of 8 GPUs, 100 Gb/s", "most": 128,
                                 "here": "ranks of one machine"}),
    "correctness": (correctness_points, {"columns": ("recall", "leaks", "duplicates", "repeats")}),
    "curves": (curve_points, {"ylabel": "accuracy", "target_label": "85 %",
                              "start": "same seed and first parameters"}),
}  # fmt: skip
