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


def speedup_points() -> list[dict[str, Any]]:
    rng = random.Random(1)
    points = []
    failed = {("MPNN-LSTM", "Youtube"): ("oom: 21.9 of 24.0 GiB", None),
              ("EvolveGCN", "Flickr"): ("time: more than 60 s", "pygt")}  # fmt: skip
    for model, dataset, system in product(MODELS, DATASETS, ("pygt-g", "pipad")):
        point: dict[str, Any] = {
            "panel": model, "row": dataset, "system": system, "baseline": "pygt",
            "twin": dataset in TWINS, "row_ids": [f"{model[:2]}{dataset[:2]}"],
        }  # fmt: skip
        value = (1.3 if system == "pygt-g" else 3.5) * rng.uniform(0.6, 2.0)
        if (dataset, model) == ("Covid19-England", "EvolveGCN"):
            value = 1.01
        if (model, dataset) in failed:
            why, culprit = failed[model, dataset]
            points.append(point | {"failed": why, "failed_system": culprit or system})
            continue
        points.append(point | {"value": value, "low": value * 0.93, "high": value * 1.08, "n": 5,
                               "deviation": 3e-7})  # fmt: skip
        if system == "pipad":
            points[-1]["paper"] = value * rng.uniform(0.7, 1.9)
    return points


def split_points() -> list[dict[str, Any]]:
    points = []
    systems = {"pygt": 0.043, "pygt-g": 0.028, "pipad": 0.009}
    for (panel, dataset), (system, total) in product(
        (("T-GCN model", "HepTh"), ("EvolveGCN", "PEMS08")), systems.items()
    ):
        where = {"panel": panel, "row": dataset, "system": system, "twin": dataset == "HepTh"}
        if (system, dataset) == ("pygt-g", "PEMS08"):
            points.append({**where, "failed": "crash: signal 11", "failed_system": system})
            continue
        points += [
            {**where, "phase": phase, "seconds": share * total, "total": total, "slowdown": 0.02}
            for phase, share in (("transfer", 0.3), ("compute", 0.5), ("update", 0.08))
        ]
    return points


def ablation_points() -> list[dict[str, Any]]:
    steps = ("parallel_aggregation", "dimension_aware", "weight_reuse", "reuse", "stale_halo")
    points = []
    for panel in ("T-GCN model, HepTh (twin)", "MPNN-LSTM, HepTh (twin)"):
        seconds = 0.041
        points.append({"panel": panel, "step": 0, "technique": "", "seconds": seconds})
        for step, (name, gain) in enumerate(zip(steps, (2.4, 1.01, 1.4, 1.8, 1.2), strict=True), 1):
            seconds /= gain
            point = {"panel": panel, "step": step, "technique": name, "twin": True}
            if panel.startswith("MPNN") and name == "stale_halo":
                points.append({**point, "failed": "check: loss differs by 0.1"})
                continue
            exact = name != "stale_halo"
            point |= {
                "seconds": seconds, "low": seconds * 0.96, "high": seconds * 1.05, "gain": gain,
                "alone": gain**0.8, "alone_low": gain**0.8 * 0.95, "alone_high": gain**0.8 * 1.06,
                "removed": gain**0.7, "exact": exact, "quality": "" if exact else "AP −0.4",
            }  # fmt: skip
            points.append(point)
    return points


def sweep_points() -> list[dict[str, Any]]:
    points = []
    for series, scale in (("pipad", 1.0), ("pygt", 3.0), ("pygt-g", 1.9)):
        for x in (2, 6, 16, 32, 64, 128):
            y = scale * x**0.9
            point = {"panel": "aggregation", "series": series, "x": x}
            if (series, x) == ("pygt", 128):
                points.append({**point, "failed": "oom: 24 GiB"})
            else:
                points.append({**point, "y": y, "low": y * 0.93, "high": y * 1.07})
    return points


def projected(points: list[dict[str, Any]], keep: Any) -> list[dict[str, Any]]:
    """The same points, those that `keep` picks as projections of a model."""
    return [{**p, "projected": True} if keep(p) and not p.get("failed") else p for p in points]


def limit_points() -> list[dict[str, Any]]:
    return [
        {"row": "aggregate, F = 2", "system": "pipad", "value": 9.1, "limit": 30.4,
         "limit_name": "copy bandwidth", "unit": "GB/s"},
        {"row": "aggregate, F = 32", "system": "pipad", "value": 21.6, "limit": 30.4,
         "limit_name": "copy bandwidth", "unit": "GB/s"},
        {"row": "aggregate, F = 32", "system": "pygt", "value": 35.0, "limit": 30.4,
         "limit_name": "copy bandwidth", "unit": "GB/s"},
        {"row": "GRU", "system": "pipad", "value": 61.0, "limit": 154.0,
         "limit_name": "matrix rate", "unit": "GFLOP/s"},
        {"row": "LSTM", "system": "pygt", "failed": "not-built: no nvcc"},
    ]  # fmt: skip


def versus_points() -> list[dict[str, Any]]:
    rng = random.Random(3)
    points = []
    for i in range(14):
        paper = rng.uniform(1.1, 9)
        measured = paper * rng.choice((0.3, 0.8, 1.0, 1.2, 0.7))
        points.append(
            {"claim": f"toy-{i}", "paper": paper, "measured": measured, "low": measured * 0.9,
             "high": measured * 1.1, "strength": ("weak", "strong")[i % 2],
             "projected": i % 5 == 4}
        )  # fmt: skip
    points.append({"claim": "toy-x", "failed": "not-supported: no GPU"})
    return points


def cell_points() -> list[dict[str, Any]]:
    rng = random.Random(5)
    points = []
    for model in MODELS[:2]:
        for dataset in DATASETS:
            for system in ("pygt", "pygt-a", "pygt-r", "pygt-g", "pipad"):
                point = {"system": system, "dataset": dataset, "model": model,
                         "twin": dataset in TWINS}  # fmt: skip
                if system == "pygt" and dataset in ("Flickr", "Youtube"):
                    word = "oom: 24 GiB" if dataset == "Flickr" else "not-supported: too wide"
                    points.append({**point, "failed": word})
                else:
                    points.append({**point, "seconds": rng.uniform(0.004, 2.0)})
    return points


def board_points() -> list[dict[str, Any]]:
    rng = random.Random(7)
    points = []
    for paper, count in (("toy", 85), ("other", 67)):
        for i in range(count):
            glyph = rng.choice("RRddXSSsssOuv=----")
            points.append(
                {"paper": paper, "title": paper.title(), "claim": f"{paper}-{i}", "glyph": glyph,
                 "twin": i % 3 == 0}
            )  # fmt: skip
    return points


def scaling_points() -> list[dict[str, Any]]:
    points: list[dict[str, Any]] = []
    for panel, slope in (("T-GCN model, HepTh", 0.82), ("EvolveGCN, HepTh", 0.93)):
        where = {"panel": panel, "twin": True}
        for series, base in (("esdg", 1.0), ("pygt, snapshots dealt", 0.8)):
            for x in (1, 2, 4):
                y = base * x**0.75
                point = {**where, "series": series, "x": x}
                if (series, x) == ("pygt, snapshots dealt", 4):
                    points.append({**point, "failed": "time: more than 60 s"})
                else:
                    points.append({**point, "y": y, "low": y * 0.9, "high": y * 1.12})
            for x in (1, 2, 4, 8, 16, 32, 64, 128):
                y = base * x**slope
                points.append({**where, "series": series, "x": x, "y": y, "projected": True,
                               "low": y / 1.2, "high": y * 1.2, "model_error": 0.17,
                               "model_error_on": "the exchanges here"})  # fmt: skip
        points += [{**where, "series": "esdg", "x": x, "y": x**0.7, "paper": True}
                   for x in (8, 32, 128)]  # fmt: skip
    return points


def correctness_points() -> list[dict[str, Any]]:
    points = []
    for panel in ("recent, 1 hop", "uniform, 2 hops"):
        for system, seconds, recall, leaks in (
            ("gnnflow", 0.0041, 1.0, 0.0),
            ("tgl", 0.0062, 1.0, 0.0),
            ("another, released 1.2", 0.0019, 0.8732, 0.0004),
            ("pygt", 0.011, 1.0, 0.0),
        ):
            point = {"panel": panel, "system": system, "row_ids": ["a"]}
            if (panel, system) == ("uniform, 2 hops", "pygt"):
                points.append({**point, "failed": "not-supported: it cannot"})
                continue
            point |= {"seconds": seconds, "low": seconds * 0.93, "high": seconds * 1.1}
            point |= {"recall": recall, "leaks": leaks, "duplicates": 0.0, "repeats": 1.0}
            points.append(point if system != "pygt" else {**point, "duplicates": None})
    return points


def curve_points() -> list[dict[str, Any]]:
    rng = random.Random(9)
    points: list[dict[str, Any]] = []
    for panel in ("T-GCN model, HepTh", "EvolveGCN, HepTh"):
        for series, each, seeds in (("reference", 0.0, 1), ("dgc", 0.8, 3), ("pygt", 1.4, 3)):
            for seed in range(seeds):
                for epoch in range(1, 41):
                    y = 0.9 - 0.4 * 0.9**epoch + rng.uniform(-0.01, 0.01)
                    point = {"panel": panel, "series": series, "x": epoch, "y": y, "seed": seed,
                             "twin": True, "target": 0.85}  # fmt: skip
                    point |= {"seconds": each * epoch} if each else {"reference": True}
                    points.append(point)
        points.append({"panel": panel, "series": "pygt-g", "failed": "oom: 24 GiB"})
    return points


def course_points() -> list[dict[str, Any]]:
    """Three processes on a GPU: one loses a counter half way, one has no phases."""
    rng = random.Random(13)
    points = []
    strips = (("gpu_memory", "MiB", 16384.0, 5000.0), ("gpu_resident", "%", 100.0, 60.0),
              ("gpu_power", "W", 300.0, 180.0))  # fmt: skip
    for system, length in (("pipad", 4.1), ("pygt-g", 6.3), ("pygt", 9.7)):
        place = {"panel": system, "system": system, "twin": True, "row_ids": [f"{system}-r1i"]}
        seconds = [i * 0.1 for i in range(int(length / 0.1))]
        for row, unit, limit, base in strips:
            low: list[float | None] = [base * rng.uniform(0.5, 1.0) for _ in seconds]
            high = [value * rng.uniform(1.0, 1.3) for value in low]
            point = {**place, "row": row, "length": length, "step": 0.1, "seconds": seconds,
                     "low": low, "high": high, "unit": unit, "limit": limit}  # fmt: skip
            if (system, row) == ("pygt", "gpu_power"):
                gone = [None] * (len(low) // 2)
                point |= {"low": low[: -len(gone)] + gone, "high": high[: -len(gone)] + gone,
                          "ended": "not offered: GPU is lost"}  # fmt: skip
            points.append(point)
        points.append({**place, "row": "gpm_sm_active",
                       "failed": "not-supported: it needs Hopper or later"})  # fmt: skip
        if system == "pygt":
            points.append({**place, "row": "phases", "failed": "skipped: no instruments"})
            continue
        pieces = int(length / 0.4) if system == "pipad" else int(length / 0.02)
        each = length / pieces
        points += [
            {**place, "row": "phases", "series": phase, "length": length, "merged": 0,
             "resolution": 0.0, "begin": [(i + first) * each for i in range(pieces)],
             "end": [(i + last) * each for i in range(pieces)]}
            for phase, first, last in (("transfer", 0, 0.3), ("compute", 0.3, 0.8),
                                       ("update", 0.8, 0.95))
        ]  # fmt: skip
        points.append({**place, "row": "marks", "series": "epoch", "length": length, "every": 1,
                       "seconds": [float(i) for i in range(1, int(length))]})  # fmt: skip
    return points


def frontier_points() -> list[dict[str, Any]]:
    points = []
    for panel, scale in (("TM-GCN, HepTh (twin)", 1.0), ("EvolveGCN, PEMS08", 0.2)):
        for series, size, speed in (("esdg", 40e6, 30.0), ("pygt", 90e6, 21.0)):
            for blocks in (1, 2, 4, 8, 16):
                point = {"panel": panel, "series": series, "setting": f"{blocks} blocks",
                         "limit": 32e6 * 3 * scale, "limit_name": "device, 92 MiB",
                         "base": blocks == 1, "twin": "twin" in panel}  # fmt: skip
                rate = speed * (1.0 - 0.04 * blocks) * (0.7 if blocks == 4 else 1.0) / scale
                if (series, blocks) == ("pygt", 1):
                    points.append({**point, "failed": "oom: 102 of 92 MiB"})
                    continue
                if (panel[0], blocks) == ("E", 16):
                    points.append({**point, "failed": "crash: signal 11"})
                    continue
                points.append({**point, "memory": size * scale * (0.3 + 1.4 / blocks),
                               "rate": rate, "low": rate * 0.95, "high": rate * 1.05})  # fmt: skip
    return points


def change_points() -> list[dict[str, Any]]:
    rng = random.Random(9)
    points: list[dict[str, Any]] = []
    for i, word in enumerate(("SLOW", "SLOW", "FAST", "AMBG") + ("SAME",) * 20):
        value = {"SLOW": 1.3 + i, "FAST": 0.6, "AMBG": 1.1, "SAME": rng.uniform(0.98, 1.02)}[word]
        row = f"fig10 {DATASETS[i % 6]} {MODELS[i % 3]} {i}"
        wide = 1.4 if word == "AMBG" else 1.02
        points.append({"row": row, "word": word, "value": value, "low": value / wide,
                       "high": value * wide, "n": 5, "twin": i % 2 == 0})  # fmt: skip
    points.append({"row": "fig10 Youtube", "word": "AMBG", "failed": "oom: only A has a value",
                   "twin": True})  # fmt: skip
    points += [{"row": f"step {i}", "word": "AMBG", "value": 1.0 + i / 10, "fold": True,
                "n": 1} for i in range(4)]  # fmt: skip
    return [*points, {"row": "3 cells", "word": "AMBG", "failed": "only in B"}]


def across_points() -> list[dict[str, Any]]:
    points = []
    for series, scale in (("2 cores, Xeon (invented)", 1.0), ("H200 (invented)", 2.6)):
        for point in speedup_points():
            if point["system"] != "pipad" or point["panel"] == "MPNN-LSTM":
                continue
            if series.startswith("H200") and point["row"] == "PEMS08":
                continue
            for key in ("value", "low", "high"):
                if key in point:
                    point[key] *= scale
            points.append({**point, "series": series})
    return points


def use_of_device_points() -> list[dict[str, Any]]:
    rng = random.Random(17)
    points = []
    for row in DATASETS[:4]:
        place = {"row": row, "system": "pipad", "twin": row in TWINS, "row_ids": [row[:2]]}
        points.append({**place, "counter": "rate", "value": rng.uniform(1e3, 1e6),
                       "unit": "edges/s"})  # fmt: skip
        for counter, unit, most, limit in (
            ("SM active", "%", 15.0, 100.0), ("kernel resident", "%", 90.0, 100.0),
            ("memory, peak", "GiB", 40.0, None), ("power", "W", 600.0, None),
            ("tensor active", "%", 0.005, 100.0), ("PCIe in", "MB", 900.0, None),
        ):  # fmt: skip
            point = {**place, "counter": counter}
            if (row, counter) == ("HepTh", "PCIe in"):
                points.append({**point, "failed": "not-supported: the counter began again"})
            else:
                points.append({**point, "value": rng.uniform(0.1, 1.0) * most, "unit": unit,
                               "limit": limit})  # fmt: skip
        points.append({**place, "counter": "NVLink in",
                       "failed": "not-supported: not offered: Not Supported",
                       "offered": False})  # fmt: skip
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
