"""The gate on counters: what grew is found and fails, what only wavers does not."""

from __future__ import annotations

import json
import os
import random

import pytest

from dgbench.harness.cli import main
from dgbench.harness.history import compare_histories, keep_baseline, newest_results, read_state
from dgbench.runtime.errors import InvalidInputError

COLUMNS = ["result", "params", "version", "started_at", "duration", "samples"]


def asv_file(path, **benchmarks):
    """A result of asv: name -> number, `[samples]`, or {parameter: number}."""
    results = {}
    for name, value in benchmarks.items():
        if isinstance(value, dict):
            results[f"suite.{name}"] = [list(value.values()), [list(value)], "v", 0, 0.1]
        elif isinstance(value, list):
            results[f"suite.{name}"] = [[sum(value) / len(value)], [], "v", 0, 0.1, [value]]
        else:
            results[f"suite.{name}"] = [None if value is None else [value], [], "v", 0, 0.1]
    path.write_text(json.dumps({"result_columns": COLUMNS, "results": results}))
    return path


def words(a, b):
    return {step.name.removeprefix("suite."): step.word for step in compare_histories(a, b).steps}


def compare(*arguments) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["compare", *map(str, arguments)])
    return ended.value.code


def noisy(mean, seed, count=12, spread=0.04):
    draw = random.Random(seed)
    return [mean * draw.lognormvariate(0, spread) for _ in range(count)]


def test_the_gate_sees_planted_regressions_and_lets_noise_pass(tmp_path, capsys):
    """The command of `nox -s asv`, with counters and samples in one state; the newest counts."""
    counters = {f"counter {i}": 1000 + i for i in range(40)}
    races = {f"race{i}": noisy(0.2 + i / 10, i) for i in range(30)}
    folder, baseline = tmp_path / "results" / "machine", tmp_path / "baseline.json"
    folder.mkdir(parents=True)
    (folder / "machine.json").write_text("{}")
    with pytest.raises(InvalidInputError):
        newest_results(tmp_path / "results")
    assert compare(baseline, asv_file(tmp_path / "a.json", counts=counters, **races), "--keep") == 0
    again = {f"race{i}": noisy(0.2 + i / 10, 100 + i) for i in range(30)}
    worse = again | {"race7": [1.3 * v for v in again["race7"]]}
    better = again | {"race7": [0.7 * v for v in again["race7"]]}
    states = [
        (counters, again, None), (counters, worse, "suite.race7"), (counters, better, None),
        (counters | {"counter 3": 1004}, again, "suite.counts(counter 3)"),
        (counters | {"counter 3": 1002}, again, None),
    ]  # fmt: skip
    for number, (counts, samples, bad) in enumerate(states):
        asv_file(folder / f"{number}.json", counts=counts, **samples)
        os.utime(folder / f"{number}.json", (2e9 + number, 2e9 + number))
        capsys.readouterr()
        assert compare(baseline, tmp_path / "results") == bool(bad)
        marked = [x for x in capsys.readouterr().out.splitlines() if x.startswith("WORSE")]
        assert [line.split()[1:] for line in marked] == [] if bad is None else bad in marked[0]
    assert compare("last", "last", "--keep") == 2


def test_what_was_skipped_is_neither_worse_nor_kept(tmp_path, capsys):
    nan = float("nan")
    old = asv_file(tmp_path / "old.json", race=noisy(1, 1), words=7, other=nan)
    base = tmp_path / "base.json"
    assert keep_baseline(old, base) == 2
    new = asv_file(tmp_path / "new.json", race=nan, words=7, other=nan)
    assert words(base, new) == {"race": "SKIP", "words": "SAME", "other": "SKIP"}
    assert compare(base, new, "--json") == 0
    assert json.loads(capsys.readouterr().out)["counts"]["SKIP"] == 2
    lost = asv_file(tmp_path / "lost.json", race=noisy(1, 1), words=nan)
    assert words(base, lost)["words"] == "FAILS"  # a counter has no reason to be skipped


def test_what_fails_or_is_gone_fails_the_gate_and_what_is_new_does_not(tmp_path):
    old = asv_file(tmp_path / "old.json", kept=1, broken=2, dropped=3)
    new = asv_file(tmp_path / "new.json", kept=1, broken=None, added=4)
    assert words(old, new) == {"kept": "SAME", "broken": "FAILS", "dropped": "GONE", "added": "NEW"}
    assert compare_histories(old, new).exit_code == 1
    assert compare_histories(old, old).exit_code == 0


def test_a_baseline_is_read_as_it_was_kept_and_none_is_made_of_failures(tmp_path):
    state = asv_file(tmp_path / "new.json", words={"a": 1, "b": 2}, ratio=noisy(2.0, 1), blocks=0)
    assert keep_baseline(state, tmp_path / "base.json") == 4
    assert read_state(tmp_path / "base.json") == read_state(state)
    before = (tmp_path / "base.json").read_bytes()
    with pytest.raises(InvalidInputError, match="words"):
        keep_baseline(asv_file(tmp_path / "new.json", words=None), tmp_path / "base.json")
    assert (tmp_path / "base.json").read_bytes() == before


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[1]",
        '{"a": "7"}',
        '{"a": {"samples": [1, -2]}}',
        "[" * 100_000,
        '{"a": Infinity}',
        '{"a": 1e308}',
        '{"a": 5e-324}',
        '{"a": {"samples": [1e-300]}}',
        '{"a": 1%s}' % ("0" * 400),
        '{"a": {"samples": [1%s]}}' % ("0" * 400),
        '{"a": %s}' % ("9" * 5000),
        # a hundred million names of one benchmark
        json.dumps(
            {
                "result_columns": ["result", "params"],
                "results": {"a": [None, [list("0123456789")] * 8]},
            }
        ),
        '{"result_columns": ["result", "params"], "results": {"a": [[1, 2], [["x"]]]}}',
    ],
)
def test_other_files_and_numbers_that_would_overflow_or_fill_the_memory_are_refused(tmp_path, text):
    (tmp_path / "b.json").write_text(text)
    with pytest.raises(InvalidInputError, match=r"b\.json"):
        read_state(tmp_path / "b.json")
