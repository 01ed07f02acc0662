"""Two states side by side: what changed is found, what only wavers is not, whatever the order."""

from __future__ import annotations

import gzip
import shutil

import fake_run
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_runs import MemoryRun, noisy, timed_rows

from dgbench.harness.cli import main
from dgbench.harness.compare import NOT_SAME, compare_runs
from dgbench.harness.quantities import exact
from dgbench.harness.repeat import agreement
from dgbench.harness.states import find_state
from dgbench.harness.store import Row, Store
from dgbench.harness.store.files import from_checked, to_checked
from dgbench.lab.table import observation
from dgbench.runtime.errors import InvalidInputError, StoreError, UnknownKeyError

MIRROR = {"SLOW": "FAST", "FAST": "SLOW", "SAME": "SAME", "AMBG": "AMBG"}


def compared(old, new):
    return compare_runs(MemoryRun(old), MemoryRun(new, "4e5f6a7b"))


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.floats(0.3, 3), st.integers(1, 6)), min_size=1, max_size=5),
       st.integers(0, 99))  # fmt: skip
def test_sides_swapped_invert_ratios_and_words(cells, seed):
    old, new = [], []
    for number, (factor, count) in enumerate(cells):
        old += timed_rows(f"d{number}", noisy(1.0, seed + number, count))
        new += timed_rows(f"d{number}", noisy(factor, seed - number - 1, count))
    there, back = compared(old, new), compared(new, old)
    assert compared(old[::-1], new[::-1]).as_plain() == there.as_plain()
    ratios = {c.name: c for c in back.changes}
    for change in there.changes:
        mirrored = ratios[change.name]
        assert mirrored.word == MIRROR[change.word]
        assert mirrored.ratio.value == pytest.approx(1 / change.ratio.value)
        if change.ratio.low is not None:
            assert mirrored.ratio.low == pytest.approx(1 / change.ratio.high)


def test_counters_are_compared_exactly_where_the_work_was_the_same():
    old, more, longer = (
        timed_rows(
            "x", noisy(1, 1), observed=[observation("memory", n), observation("turns", turns)]
        )
        for n, turns in ((100, 4), (101, 4), (200, 8))
    )
    found = compared(old, more)
    assert (found.changes[0].counters, found.exit_code) == ({"memory": (100, 101)}, NOT_SAME)
    assert compared(more, old).exit_code == 0
    paced = compared(old, longer).changes[0]
    assert (paced.counters, paced.paced) == ({}, False)
    wavering = timed_rows("x", noisy(1, 1))
    for number, row in enumerate(wavering):
        row.observed += [observation("transfers", number), observation("edges", 5)]
    new = timed_rows(
        "x", noisy(1, 2), observed=[observation("transfers", 3), observation("edges", 5)]
    )
    assert compared(wavering, new).exit_code == 0


def test_data_and_facts_that_differ_are_told():
    small, large = ({"dataset": "x", "twin": True, "scale": s} for s in (0.1, 0.2))
    facts, other = ({"code": {"commit": c}, "settings": {"seed": c}} for c in "ab")
    a = MemoryRun(timed_rows("x", noisy(1, 1), data=small), facts=facts)
    b = MemoryRun(timed_rows("x", noisy(1, 2), data=large), facts=other)
    assert compare_runs(a, b).differs == ["data", "code"]


def kept(tmp_path, seed=1, scale=1.0, commit="0" * 40, started=None):
    """A run on disk, with a commit in its provenance."""
    path = fake_run.make_run(tmp_path / "runs", seed=seed, scale=scale)
    facts = from_checked(path / "provenance.json")
    facts = {key: one | {"code": {"commit": commit, "dirty": False}} for key, one in facts.items()}
    (path / "provenance.json").write_bytes(to_checked(facts))
    info = from_checked(path / "run.json")
    started = started or info["started"]
    (path / "run.json").write_bytes(to_checked({**info, "started": started}))
    return path


def test_a_side_is_a_run_a_folder_a_commit_or_a_machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DGBENCH_RESULTS", str(tmp_path / "runs"))
    one = kept(tmp_path, commit="abcdef1" + "0" * 33, started="2026-01-01T00:00:00+00:00")
    two = kept(tmp_path, seed=2, commit="abcdef1" + "0" * 33, started="2026-01-02T00:00:00+00:00")
    machine = tmp_path / "results" / "reference" / "invented-2-cores" / "toy"
    shutil.copytree(one, machine)
    rows = (machine / "rows.jsonl").read_bytes()
    (machine / "rows.jsonl").unlink()
    (machine / "rows.jsonl.gz").write_bytes(gzip.compress(rows, mtime=0))
    first, second = (Store.open(p).run for p in (one, two))
    for side, runs in (
        (first, (first,)), (str(two), (second,)), ("abcdef10", (second,)),  # the newest
        ("machine:invented-2-cores", (first,)), (f"{first},{second}", (first, second)),
        (f"{first},{one}", (first,)),  # the same run counts once
    ):  # fmt: skip
        assert find_state(side).runs == runs
    assert find_state("results/reference/invented-2-cores").name == "invented-2-cores"
    (tmp_path / "empty").mkdir()
    for side in ("nothing", "machine:nowhere", "abcdef1234", "last,", "empty"):
        with pytest.raises((UnknownKeyError, StoreError, InvalidInputError)):
            find_state(side)


def test_the_command_writes_a_page_that_stands_alone_and_json(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    a, b = kept(tmp_path), kept(tmp_path, seed=2, scale=1.5)

    def call(*arguments) -> int:
        with pytest.raises(SystemExit) as ended:
            main(["compare", *map(str, arguments)])
        return int(ended.value.code or 0)

    assert call(a, b, "--out", "out") == NOT_SAME
    page = (tmp_path / "out" / "compare.html").read_text()
    assert "22 SLOW, 0 FAST" in page
    linked = [x for x in page.split('"') if x.startswith("figures/") or x.endswith(".csv")]
    assert linked
    assert all((tmp_path / "out" / name).is_file() for name in linked)
    capsys.readouterr()
    assert call(a, b, "--json") == NOT_SAME
    plain = msgspec.json.decode(capsys.readouterr().out)
    assert sum(plain["counts"].values()) == len(plain["changes"])
    assert all(len(change["rows"]) == 2 for change in plain["changes"])


# The same cells of one commit twice, counted alone.


def counted(**counts):
    return [observation(name, count) for name, count in counts.items()]


def cell(name, **fields):
    fields = {"observed": counted(edges=7, turns=9), "group": name} | fields
    hash_ = f"{name}{fields.get('params', {})}"
    fields = {"params": {"dataset": name}} | fields
    return Row(id=f"{name}-r1", cell_hash=hash_, paper="toy", experiment="fig1", **fields)


def test_a_run_agrees_with_its_copy(tmp_path):
    rows = Store.open(fake_run.make_run(tmp_path)).rows()
    found = agreement(rows, rows)
    assert (found.apart, found.only_a, found.only_b, found.disagree) == ([], [], [], [])
    assert found.counters == sum(len(exact(r)) for r in rows) > 0
    assert found.exit_code == 0


@pytest.mark.parametrize(
    ("name", "value"), [("edges", 8), ("edges", None), ("vertices", 1)], ids=["off", "gone", "new"]
)
@pytest.mark.parametrize(
    "kind", [{}, {"instrumented": True}, {"params": {"control": "aa"}}, {"round": 2}], ids=str
)
def test_one_counter_of_one_process_is_enough(kind, name, value):
    rows = [cell("a"), cell("b", **kind)]
    before = exact(rows[1])
    after = {k: v for k, v in (before | {name: value}).items() if v is not None}
    again = msgspec.structs.replace(rows[1], observed=counted(**after))
    found = agreement(rows, [rows[0], again])
    (one,) = found.apart
    assert (one.what, one.a, one.b) == (name, before.get(name), after.get(name))
    assert found.exit_code == NOT_SAME
