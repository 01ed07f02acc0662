"""The page of history: which series there are, and which commit is marked."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec import structs
from passed_checks import PASSED

from dgbench.harness.report.comparisons import HISTORY, history_page
from dgbench.harness.report.history import series_of_asv, series_of_runs
from dgbench.harness.report.kept_history import FILE, past_runs, read_past, write_past
from dgbench.harness.report.pages import environment
from dgbench.harness.report.site import SiteData
from dgbench.harness.store import Row
from dgbench.harness.store.files import to_line
from dgbench.lab.table import observation
from dgbench.runtime.errors import StoreError

COLUMNS = ["result", "params", "version", "started_at", "duration", "samples"]


def asv_file(folder, commit, date, **benchmarks):
    """A result of asv of a commit: name -> number or samples."""
    results = {}
    for name, value in benchmarks.items():
        samples = [value] if isinstance(value, list) else None
        number = sum(value) / len(value) if samples else value
        results[name] = [[number], [], "v", 0, 0.1, samples]
    plain = {"result_columns": COLUMNS, "results": results, "commit_hash": commit, "date": date}
    path = folder / "box" / f"{commit}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(plain))


def run(commit, started, seconds, *, preset="quick", machine="box", noise=0.02):
    """A run of one race: the own system needs `seconds` where its rival needs one."""
    rows = [
        Row(id=f"{system}-r{k}", cell_hash=system, paper="toy", experiment="race", group="g",
            params={"dataset": "d", "system": system}, round=k, checks=[PASSED],
            observed=[observation("step_time", t, samples=[t])])
        for system, times in (("toy", seconds), ("rival", [1.0] * len(seconds)))
        for k, t in enumerate(times, 1)
    ]  # fmt: skip
    return SimpleNamespace(
        rows=rows, noise=noise, kept=False, smoke=preset == "smoke", device="cpu",
        slug=f"{machine}-{started}",
        machine_slug=machine, info={"started": started, "preset": preset},
        store=SimpleNamespace(
            path=Path(started), provenance=lambda: {"k": {"code": {"commit": commit}}}
        ),
    )  # fmt: skip


def noisy(mean, seed):
    draw = random.Random(seed)
    return [mean * draw.lognormvariate(0, 0.01) for _ in range(8)]


def test_the_commit_that_made_a_race_slower_is_marked_and_noise_is_not():
    means = [("aaa", 1.0), ("bbb", 1.0), ("ccc", 1.1), ("ddd", 1.1)]
    runs = [run(c, f"2026-01-0{k}", noisy(m, k)) for k, (c, m) in enumerate(means, 1)]
    (series,) = series_of_runs(runs[::-1])  # in whatever order they are given
    assert [p.commit for p in series.points] == ["aaa", "bbb", "ccc", "ddd"]
    assert [commit for commit, _ in series.worse] == ["ccc"]
    loud = [run(c, f"2026-01-0{k}", noisy(m, k), noise=0.2) for k, (c, m) in enumerate(means, 1)]
    assert series_of_runs(loud)[0].worse == []


def test_runs_of_a_commit_are_one_point_and_machines_and_presets_stay_apart():
    runs = [run(c, str(k), noisy(1, k)) for k, c in enumerate(("aaa", "aaa", "bbb"))]
    (series,) = series_of_runs(runs)
    assert [len(p.values) for p in series.points] == [16, 8]
    apart = [run("aaa", "1", noisy(1, 1)), run("bbb", "2", noisy(1, 2), machine="other"),
             run("ccc", "3", noisy(1, 3), preset="full"),
             run("ddd", "4", noisy(1, 4), preset="smoke"), run("", "5", noisy(1, 5))]  # fmt: skip
    assert series_of_runs(apart) == []
    assert past_runs(apart[3]) == past_runs(apart[4]) == []  # neither is kept
    apart[0].rows = [structs.replace(row, preset="quality") for row in apart[0].rows]
    assert past_runs(apart[0]) == []


def test_a_counter_of_asv_that_grew_by_one_is_marked_with_its_commit(tmp_path):
    for date, (commit, count) in enumerate([("c1", 7), ("c0", 7), ("c2", 8), ("c3", 6)]):
        asv_file(tmp_path, commit, date, words=count, race=noisy(1, date))
    asv_file(tmp_path, "c4", 9, words=float("nan"))
    (tmp_path / "box" / "machine.json").write_text("{}")
    (tmp_path / "box" / "torn.json").write_text('{"commit_hash": ')
    found = {s.name: s for s in series_of_asv(tmp_path)}
    assert [p.commit for p in found["words"].points] == ["c1", "c0", "c2", "c3"]
    assert found["words"].worse == [("c2", "7 -> 8")]
    assert found["words"].steps == ["", "SAME", "SLOW", "FAST"]
    assert found["race"].worse == []
    site = SiteData(runs=[], front="index.html", papers=[], machines=[], parts=("compare",))
    page = history_page(site, environment(), tmp_path)[HISTORY]
    assert "c2" in page[page.index("<tbody>") : page.index("</tbody>")]
    assert history_page(site, environment(), tmp_path / "none") == {}


def test_runs_that_were_kept_and_replaced_are_still_points(tmp_path):
    means = [("aaa", 1.0), ("bbb", 1.1), ("ccc", 1.1)]
    runs = [run(c, f"2026-01-0{k}", noisy(m, k)) for k, (c, m) in enumerate(means, 1)]
    machine = tmp_path / "box"
    machine.mkdir()
    assert read_past(machine) == []
    write_past(machine, [past for one in runs[::-1] for past in past_runs(one)])
    write_past(machine, [*read_past(machine), *past_runs(runs[0])])  # one that it has
    assert [past.commit for past in read_past(machine)] == ["aaa", "bbb", "ccc"]
    last = runs[-1]
    last.kept, last.store.path = True, machine / "toy"
    (kept,), (whole,) = series_of_runs([last]), series_of_runs(runs)
    assert [p.commit for p in kept.points] == ["aaa", "bbb", "ccc"]
    assert [c for c, _ in kept.worse] == [c for c, _ in whole.worse] == ["bbb"]
    last.kept = False  # another run of the machine is not asked for what was kept
    assert series_of_runs([last]) == []


@pytest.mark.parametrize("damage", [lambda b: b[:-20], lambda b: gzip.compress(b"{}\n"),
                                    lambda b: gzip.compress(to_line(b'{"paper": 1}'))])  # fmt: skip
def test_a_damaged_history_is_no_empty_one(tmp_path, damage):
    write_past(tmp_path, past_runs(run("aaa", "2026-01-01", noisy(1, 1))))
    path = tmp_path / FILE
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(StoreError, match=FILE):
        read_past(tmp_path)
