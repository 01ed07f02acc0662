"""The ledger of predictions for a device, at a 500th of its sizes on a CPU."""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest
import torch

from dgbench.runtime.errors import UnsupportedError

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "scripts"
IDS = ["A1", "A2", "A3", "A4", "B1", "C1", "C2", "C3", "D1", "E1", "F1", "G1", "G2", "H1"]

pytestmark = pytest.mark.skipif(not SCRIPTS.is_dir(), reason="no checkout: scripts do not travel")


@pytest.fixture
def ledger(monkeypatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module("gpu_ledger")


def rows_of(ledger, monkeypatch, tmp_path, *arguments: str, status: int = 0) -> list[dict]:
    out = tmp_path / f"{len(list(tmp_path.iterdir()))}.jsonl"
    monkeypatch.setattr(sys, "argv", ["gpu_ledger.py", "--device", "cpu", "--small", "--out",
                                      str(out), *arguments])  # fmt: skip
    with pytest.raises(SystemExit) as ended:
        ledger.main()
    assert ended.value.code == status
    if not out.exists():  # a later --out won
        return []
    return [json.loads(line) for line in out.read_text().splitlines()]


@pytest.mark.filterwarnings("ignore:Sparse")
def test_every_prediction_has_a_row_that_is_compared(ledger, monkeypatch, tmp_path) -> None:
    rows = rows_of(ledger, monkeypatch, tmp_path)
    assert sorted(row["id"] for row in rows) == sorted(entry.name for entry in ledger.LEDGER)
    assert list(dict.fromkeys(entry.name[:2] for entry in ledger.LEDGER)) == IDS
    for row in rows:
        assert row["word"].startswith("not here"), row  # what was predicted is an H200
        if "us" in row:
            assert row["us"] > 0
            assert row["deviation"] <= ledger.TOLERANCE
        elif "failed" not in row:
            missing = {entry.name for entry in ledger.LEDGER if entry.missing}
            assert row["id"] in missing | {"D1 evict"}
    measured = {row["id"]: row for row in rows if "us" in row}
    assert len(measured) >= 28
    rivals = [measured[name]["us"] for name in ledger.BASE]
    scatter = measured["A2 PyG scatter"]
    assert scatter["ratio"] == pytest.approx(scatter["us"] / min(rivals))


def test_a_clock_that_has_run_out_leaves_rows_that_say_so(ledger, monkeypatch, tmp_path) -> None:
    rows = rows_of(ledger, monkeypatch, tmp_path, "--seconds", "0", status=124)
    late = [row for row in rows if row["word"] == "out of time"]
    assert len(late) == sum(not entry.missing for entry in ledger.LEDGER)
    assert not any("us" in row for row in rows)
    # A second call with the same file measures what was late, a third one nothing.
    out = tmp_path / "rows.jsonl"
    out.write_text(json.dumps({"id": "F1", "failed": ledger.LATE}) + '\n{"id": "G1 gr')
    rows_of(ledger, monkeypatch, tmp_path, "--only", "F1", "--out", str(out))
    for _ in range(2):
        found = ledger.Rows(out, 1).kept("id")
        assert found.keys() == {"F1"}
        assert found["F1"]["us"] > 0
        size = out.stat().st_size
        rows_of(ledger, monkeypatch, tmp_path, "--only", "F1", "--out", str(out))
        assert out.stat().st_size == size


@pytest.mark.parametrize(
    ("low", "high", "gain", "measured", "said"),
    [
        (8, 10, False, 9, "met"),
        (8, 10, False, 20, "slower by 2x"),
        (8, 10, False, 4, "faster by 2x"),
        (45, 45, False, 50, "met"),  # one number is met a fifth around it
        (45, 45, False, 540, "slower by 12x"),
        (2.6, 2.6, True, 2.4, "met"),
        (2.4, 2.8, True, 1.2, "slower by 2x"),
        (2.4, 2.8, True, 5.6, "faster by 2x"),
        (None, None, False, 5, "nothing was predicted"),
    ],
)
def test_the_word_of_a_measurement(ledger, low, high, gain, measured, said) -> None:
    assert ledger.word(ledger.LedgerEntry("X", "it", low, high, gain=gain), measured) == said


@pytest.mark.parametrize(
    ("deviation", "row", "said", "failed"),
    [
        (0.0, {"us": 20.0, "kernels_us": 9.0}, "slower by 2x (kernels alone: met)", 0),
        (1e-6, {"us": 9.0, "kernels_us": 9.0}, "met", 0),
        (1e-3, {"us": 9.0, "kernels_us": 9.0}, "WRONG: 1.0e-03 from the reference", 1),
        (float("nan"), {"us": 9.0, "kernels_us": 9.0}, "WRONG: nan from the reference", 1),
        ("RuntimeError: no", {"us": 9.0, "kernels_us": 9.0}, "RuntimeError: no", 1),
        (0.0, {"failed": "out of time"}, "out of time", 0),
        (0.0, {"failed": "not here: no such device"}, "not here: no such device", 0),
        (0.0, {"failed": "RuntimeError: CUDA error"}, "RuntimeError: CUDA error", 1),
    ],
)
def test_what_is_wrong_or_missing_is_not_met(
    ledger, tmp_path, deviation, row, said, failed
) -> None:
    out = ledger.Rows(tmp_path / "rows.jsonl", 1)
    ledger.Ledger(out, "cuda").add("A1 small", deviation, **row)
    (found,) = (json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines())
    assert (found["word"], out.failed) == (said, failed)


@pytest.mark.parametrize("first", [True, False])
def test_a_family_that_cannot_be_made_says_why_for_all_to_come(ledger, tmp_path, first) -> None:
    def family(share, device):
        if first:
            yield "E1 half of 1e6", ledger.Case(lambda: None, lambda: 0.0)
        raise MemoryError("a graph of 190 GB")

    out = ledger.Rows(tmp_path / "rows.jsonl", 1)
    ledger.play(ledger.Ledger(out, "cpu"), ("E",), family, "cpu", small=False)
    rows = map(json.loads, (tmp_path / "rows.jsonl").read_text().splitlines())
    words = {row["id"]: row["word"] for row in rows}
    assert list(words) == [entry.name for entry in ledger.LEDGER if entry.name.startswith("E")]
    failed = [word for word in words.values() if word == "MemoryError: a graph of 190 GB"]
    assert len(failed) == out.failed == len(words) - first
    assert ledger.said(UnsupportedError("no such kernel")).startswith("not here")


def test_every_row_is_of_one_family(ledger) -> None:
    for entry in ledger.LEDGER:
        families = [ids for ids, _ in ledger.FAMILIES if entry.name.startswith(ids)]
        assert len(families) == 1 or entry.missing, entry.name


def test_snapshots_overlap_as_their_edges_live(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    graphs = importlib.import_module("gpu_ledger_graphs")
    found = graphs.snapshots(500, 2100, 4, 7, "cpu")
    keys = [set((g.indices + 500 * torch.repeat_interleave(
        torch.arange(500), g.indptr.diff())).tolist()) for g in found]  # fmt: skip
    assert all(len(k) == g.nnz == 2100 for k, g in zip(keys, found, strict=True))
    assert len(set.intersection(*keys)) == 2100 * 4 // 7  # (life - snapshots + 1) / life
    steps = graphs.vertex_steps(0.00002, "cpu")
    rows = torch.repeat_interleave(torch.arange(steps.num_rows), steps.indptr.diff())
    there = set(zip(rows.tolist(), steps.indices.tolist(), strict=True))
    assert there == {(b, a) for a, b in there}
    assert all((v, v + 1) in there for v in range(graphs.MOVIE[1] - 1))
    assert (graphs.MOVIE[1] - 1, graphs.MOVIE[1]) not in there  # another entity begins


def test_a_timer_counts_its_rounds_and_not_what_makes_them_ready(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    timing = importlib.import_module("gpu_timing")
    said: list[str] = []

    def before() -> None:
        said.append("before")
        time.sleep(0.02)

    took = timing.Timer("cpu", 4).on_device(lambda: said.append("run"), before)
    assert len(took) == 4
    assert said == ["before", "run"] * (4 + timing.WARM_UP)
    assert max(took) < 0.01
    assert len(timing.Timer("cpu", 9, most_s=0).of_call(lambda: None)) == 1
