"""The gate on counters: what grew is found and fails, what only wavers does not."""

from __future__ import annotations

import json
import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


def test_a_counter_that_grows_by_one_fails_the_command(tmp_path, capsys):
    old = asv_file(tmp_path / "old.json", words={"a": 100, "b": 7}, blocks=5)
    baseline = tmp_path / "baseline.json"
    assert compare(baseline, old, "--keep") == 0
    assert compare(baseline, old) == 0
    new = asv_file(tmp_path / "new.json", words={"a": 101, "b": 7}, blocks=4)
    capsys.readouterr()
    assert compare(baseline, new) == 1
    said = capsys.readouterr().out.splitlines()
    shown = [line for line in said if not line.startswith("  ")]
    assert shown[1].split() == ["WORSE", "suite.words(a)", "100", "->", "101", "+1.0", "%"]
    assert shown[2].startswith("BETTER  suite.blocks") or shown[2].startswith("BETTER suite.blocks")
    assert shown[-1] == "exit 1: 1 WORSE"


def test_noise_passes_and_a_slower_measurement_does_not(tmp_path):
    old = asv_file(tmp_path / "old.json", ratio=noisy(1.0, 1))
    same = asv_file(tmp_path / "same.json", ratio=noisy(1.01, 2))
    slow = asv_file(tmp_path / "slow.json", ratio=noisy(1.3, 3))
    fast = asv_file(tmp_path / "fast.json", ratio=noisy(0.7, 4))
    assert compare(old, same) == 0
    assert words(old, slow) == {"ratio": "WORSE"}
    assert compare(old, slow) == 1
    assert words(old, fast) == {"ratio": "BETTER"}


def test_few_samples_decide_nothing(tmp_path):
    old = asv_file(tmp_path / "old.json", ratio=[1.0] * 5)
    new = asv_file(tmp_path / "new.json", ratio=[2.0] * 5)
    assert words(old, new) == {"ratio": "AMBG"}


def test_what_was_skipped_is_neither_worse_nor_kept(tmp_path, capsys):
    nan = float("nan")
    old = asv_file(tmp_path / "old.json", race=noisy(1, 1), words=7, other=nan)
    base = tmp_path / "base.json"
    assert keep_baseline(old, base) == 2
    new = asv_file(tmp_path / "new.json", race=nan, words=7, other=nan)
    assert words(base, new) == {"race": "SKIP", "words": "SAME", "other": "SKIP"}
    assert compare(base, new) == 0
    assert "2 benchmarks skipped, asv says why" in capsys.readouterr().out
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


@settings(deadline=None, max_examples=30)
@given(
    st.dictionaries(st.text("abc", min_size=1), st.integers(0, 10**12), min_size=1),
    st.data(),
)
def test_the_exit_code_is_whether_any_counter_grew(tmp_path_factory, old, data):
    folder = tmp_path_factory.mktemp("gate")
    new = {name: data.draw(st.sampled_from([v, v + 1, max(0, v - 1)])) for name, v in old.items()}
    for name, state in (("a.json", old), ("b.json", new)):
        (folder / name).write_text(json.dumps(state))
    found = compare_histories(folder / "a.json", folder / "b.json")
    assert found.exit_code == any(new[name] > old[name] for name in old)
    assert len(found.steps) == len(old)


def test_a_baseline_is_read_as_it_was_kept(tmp_path):
    state = asv_file(tmp_path / "new.json", words={"a": 1, "b": 2}, ratio=noisy(2.0, 1), blocks=0)
    assert keep_baseline(state, tmp_path / "base.json") == 4
    assert read_state(tmp_path / "base.json") == read_state(state)


def test_a_failed_benchmark_makes_no_baseline(tmp_path):
    (tmp_path / "base.json").write_text('{"suite.words": 1}')
    with pytest.raises(InvalidInputError, match=r"suite\.words failed"):
        keep_baseline(asv_file(tmp_path / "new.json", words=None), tmp_path / "base.json")
    assert read_state(tmp_path / "base.json") == {"suite.words": 1}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "cannot be read as JSON"),
        ("[1]", "holds list"),
        ('{"a": "7"}', "'7', a number is allowed"),
        ('{"a": {"samples": [1, -2]}}', "numbers > 0 are allowed"),
        (
            '{"result_columns": ["result", "params"], "results": {"a": [[1, 2], [["x"]]]}}',
            "neither",
        ),
    ],
)
def test_a_file_of_another_kind_is_named(tmp_path, text, said):
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(InvalidInputError, match=r"bad\.json") as error:
        read_state(tmp_path / "bad.json")
    assert said in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
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
def test_numbers_that_would_overflow_or_fill_the_memory_are_refused(tmp_path, text):
    (tmp_path / "b.json").write_text(text)
    with pytest.raises(InvalidInputError):
        read_state(tmp_path / "b.json")
