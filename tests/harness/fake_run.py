"""An invented run of an invented paper, for tests of figures, pages and tables.

The numbers are drawn from a seeded generator and mean nothing. Nothing of this is ever written
under `results/`.
"""

from __future__ import annotations

import atexit
import json
import random
import shutil
import tempfile
from datetime import datetime, timedelta
from functools import cache
from itertools import product
from pathlib import Path

from fake_points import DATASETS, MODELS, TWINS
from msgspec.structs import replace
from passed_checks import PASSED

from dgbench.harness.figures.style import Context
from dgbench.harness.store import Row, Store
from dgbench.lab.compare import paired
from dgbench.lab.judging import note_read
from dgbench.lab.main_race import MainRace, RaceComparison, paired_systems
from dgbench.lab.table import observation
from dgbench.systems.base import Cell, Experiment, FigureSpec, Finding, Measurement, Paper

LIMITS = [
    observation("bandwidth", 30.4e9, place="host", using="all"),
    observation("product_rate", 154.2e9, place="host", using="all"),
]

CONTEXT = Context(
    machine="2x Xeon (invented)", device="cpu", date="2026-01-02", run="0a1b2c3d", preset="quick",
    noise=0.035,
)  # fmt: skip


STATED = [
    ("speedup", "x (end-to-end training time)", 3.5), ("utilisation", "% (nvidia-smi)", 41.2),
    ("volume", "words", 1200), ("ordering", None, "CSR <= sliced CSR <= COO"),
    ("speedup", "x", {"low": 1.22, "high": 9.57}),
]  # fmt: skip
CLAIMED = "Across all datasets the invented system is claimed to be ahead <b>by this much</b>."


def claims_yaml(path: Path) -> Path:
    """A ledger of 24 claims of every kind."""
    rng = random.Random(11)
    entries = []
    for i in range(24):
        kind, unit, value = rng.choice(STATED)
        entries.append({
            "id": f"toy-fig{i}-what-is-claimed", "where": f"Figure {i}", "statement": CLAIMED,
            "kind": kind, "unit": unit, "value": value, "hardware": "1x Invented GPU 16 GB",
            "needs": {"gpus": i % 2, "cpu_only_ok": i % 4 == 0},
            "notes": "Invented & never measured.",
        })  # fmt: skip
    path.write_text(json.dumps(entries), encoding="utf-8")  # YAML without aliases
    return path


def _check(index: int):
    def check(claim, rows):
        usable = [r for r in rows if r.status == "ok"]
        style = index % 8
        if style == 0:
            return Finding(reason="needs one CUDA device")
        if style == 7 and index > 20:
            raise ValueError("invented failure")
        if index % 4 in (0, 2):
            for row in usable[:3]:
                note_read(row, "step_time" if index % 4 else "edges")
        found = Finding(rows=[r.id for r in usable[:3]], processes=5)
        found.model = "invented model" if index % 4 == 3 else ""
        if isinstance(claim.value, str):
            found.measured, found.holds = claim.value, index % 3 != 1
            return found
        base = 3.5 if isinstance(claim.value, dict) else float(claim.value)
        found.measured = base * (0.2 if style == 5 else 1.0)
        found.low, found.high = found.measured * 0.95, found.measured * 1.05
        found.deviation = 2e-7
        return found

    return check


TOY = RaceComparison(
    subject="Toy", rival="PyG-Temporal", package="torch-geometric-temporal",
    rival_without="PyG-Temporal (re-implemented)", systems=("pipad", "pygt"),
    ratio=paired_systems("pygt", "pipad"),
)  # fmt: skip


class Race(Experiment):
    paper = "toy"
    main_race = MainRace(verb="trains", comparisons=(TOY,))
    name = "fig1"
    title = "Figure 1: end-to-end training"
    question = "How much faster is the invented system?"
    claims = ("toy-fig1-what-is-claimed", "toy-fig2-what-is-claimed", "toy-fig5-what-is-claimed")
    reading = "The paper names no optimiser <here Adam>."

    def cells(self, preset, device):
        return [
            Cell(paper="toy", experiment="fig1", params={"system": s, "dataset": d, "model": m},
                 group=f"{d}/{m}", repeats=5)
            for m in MODELS[:2] for d in DATASETS for s in ("pygt", "pipad")
        ]  # fmt: skip

    def run(self, cell, context):
        return Measurement(samples=[0.01])

    def figures(self):
        return [FigureSpec("speedup", "fig1", "Speed-up over PyGT", self._points)]

    @staticmethod
    def _points(rows):
        points = []
        for model, dataset in product(MODELS[:2], DATASETS):
            where = {"dataset": dataset, "model": model}
            point = {"panel": model, "row": dataset, "system": "pipad", "baseline": "pygt"}
            ratio = paired(rows, {"system": "pygt", **where}, {"system": "pipad", **where})
            if ratio is None:
                bad = [r for r in rows if not r.ok and where.items() <= r.params.items()]
                why = f"{bad[0].status}: {bad[0].reason}" if bad else "skipped: not run"
                points.append({**point, "failed": why, "failed_system": "pygt"})
                continue
            points.append(
                {**point, "value": ratio.value, "low": ratio.low, "high": ratio.high,
                 "n": ratio.n, "row_ids": ratio.rows, "twin": ratio.twin, "paper": 4.0,
                 "deviation": ratio.deviation}
            )  # fmt: skip
        return points

    def answer(self, rows):
        return "The invented system is ahead on 10 of 12 invented workloads."


class Idle(Race):
    main_race = None
    name = "table9"
    title = "Table 9: never run"
    question = "What would a GPU say?"
    claims = ("toy-fig8-what-is-claimed",)
    reading = ""


def toy_paper(folder: Path) -> Paper:
    """The invented paper; its ledger is written into `folder`."""
    return Paper(
        name="toy", title="Toy", venue="Nowhere 2026", system="pipad",
        about="An invented system that trains <graph> networks on snapshots. It reuses work.",
        ledger=claims_yaml(folder / "toy.claims.yaml"),
        experiments=(Race(), Idle()),
        checks={f"toy-fig{i}-what-is-claimed": _check(i) for i in range(24)},
        readings=("The paper does not say how <b>time</b> was taken.",),
    )  # fmt: skip


def make_run(root: Path, *, preset: str = "quick", scale: float = 1.0, seed: int = 1) -> Path:
    """A finished run of the toy paper under `root`, written once a session; `scale` multiplies
    all times."""
    whole = _written_run(preset, scale, seed)
    return Path(shutil.copytree(whole, root / whole.name))


@cache
def _written_runs() -> Path:
    root = Path(tempfile.mkdtemp(prefix="dgbench-"))
    atexit.register(shutil.rmtree, root)
    return root


@cache
def _written_run(preset: str, scale: float, seed: int) -> Path:
    rng = random.Random(seed)
    info = {"papers": ["toy"], "preset": preset, "device": "cpu", "command": "dgbench run toy"}
    store = Store.create(_written_runs(), info)
    with store:
        cpu = {"model": "Invented(R) CPU @ 2 GHz", "usable": 2}
        key = store.add_provenance({"machine": {"cpu": cpu, "gpus": []}})
        common = {"run": store.run, "preset": preset, "provenance": key}
        store.append(Row(id="machine-r1", paper="-", experiment="machine", cell_hash="m",
                         observed=LIMITS, seconds=2.0, **common))  # fmt: skip
        for number, cell in enumerate(Race().cells(preset, "cpu")):
            dataset = cell.params["dataset"]
            slow = cell.params["system"] == "pygt"
            lost = {"Flickr": ("oom", "21.9 of 24.0 GiB"), "Youtube": ("time", "more than 60 s")}
            lost = lost if slow and cell.params["model"] == "EvolveGCN" else {}
            for turn in range(1, 6):
                time = (0.04 if slow else 0.011) * (1 + number / 30) * scale
                time *= rng.uniform(0.98, 1.02)
                name = f"c{number:03d}"
                row = Row(
                    id=f"{name}-r{turn}", cell_hash=name, paper="toy", experiment="fig1",
                    params=dict(cell.params), group=cell.group, round=turn, seconds=1.5,
                    log=f"logs/{name}-r{turn}.log", **common,
                )  # fmt: skip
                if dataset in lost:
                    row.status, row.reason = lost[dataset]
                else:
                    row.observed = [
                        observation("step_time", time * 1.005, samples=[time, time * 1.01]),
                        observation("edges", 1000 + number),
                    ]
                    row.deviation, row.checks = {"loss": 2e-7}, [PASSED]
                    row.data = {"dataset": dataset, "twin": dataset in TWINS}
                    row.probes = {"peak_rss_bytes": 1 << 30, "energy_mj": "no NVML here"}
                store.append(row)
                if number == 0:
                    again_s = time * rng.uniform(0.98, 1.03)
                    store.append(replace(
                        row, id=f"aa-r{turn}", cell_hash="aa",
                        params=row.params | {"control": "aa"},
                        observed=[observation("step_time", again_s, samples=[again_s])],
                    ))  # fmt: skip
        begin = datetime.fromisoformat(store.info["started"])
        store.update(state="done", ended=(begin + timedelta(seconds=192)).isoformat())
    return store.path
