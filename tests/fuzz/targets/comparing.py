"""Two states side by side: rows of runs, and histories of counters."""

from __future__ import annotations

import json
import math

import msgspec

from dgbench.harness.compare import compare_states
from dgbench.harness.export import observations_table, rows_table, write_table
from dgbench.harness.history import compare_histories, read_state
from dgbench.harness.samples import series_of
from dgbench.harness.states import State
from dgbench.harness.store import Store
from dgbench.harness.store.files import to_line
from dgbench.harness.store.row import encode
from dgbench.harness.terminal.comparison import comparison_text
from dgbench.harness.terminal.history import history_text
from tests.fuzz.target import sane, scratch, sections, target
from tests.fuzz.targets.runs import NUMBERS, folder_with, rows


def both() -> list[bytes]:
    one = b"\n".join(encode(row) for row in rows())
    return [one + b"\n=====\n" + one, one + b"\n=====\n" + encode(rows()[0])]


def opened(name: str, payloads: bytes) -> Store:
    text = b"".join(to_line(line) for line in payloads.split(b"\n"))
    return Store.open(folder_with(name, **{"rows.jsonl": text}))


@target(
    "compare", seeds=both, kind="lines", tokens=(*NUMBERS, b"speedup", b'"low":0', b'"samples":[0]')
)
def compare(data: bytes) -> None:
    """Rows of two runs behind right checksums, compared."""
    sides = sections(data)
    states = [State.of([opened(f"compare-{k}", side)]) for k, side in enumerate(sides[:2])]
    found = compare_states(states[0], states[-1])
    plain = found.as_plain()
    sane(msgspec.json.decode(msgspec.json.encode(plain)) == plain, "not plain JSON")
    sane(sum(plain["counts"].values()) == len(found.changes), "a change without a word")
    sane(comparison_text(found, every=True).endswith(found.why), "the exit code is not last")
    alike = compare_states(states[0], states[0])
    sane(alike.exit_code == 0, f"a run against itself: {alike.why}")
    for name, _, value in series_of(states[0].rows):
        sane(math.isfinite(value) and value > 0, f"{name} is {value}")


@target("export", seeds=lambda: [b"\n".join(encode(r) for r in rows())], kind="lines",
        tokens=(*NUMBERS, b"\\begin{x}", b"\\u0000", b"\\ud800"))  # fmt: skip
def export(data: bytes) -> None:
    """Rows behind right checksums, as a table."""
    store = opened("export", data)
    table = rows_table(store.written())
    sane(len(table) == len(store.written()), "a row was lost")
    numbers = observations_table(store.written())
    sane(len(numbers) == sum(len(r.observations) for r in store.written()), "a number was lost")
    out = scratch("export")
    for name in ("rows.csv", "rows.parquet", "rows.tex")[: 1 + 2 * (len(data) % 16 == 0)]:
        write_table(table, out / name)


COUNTERS = {"a.track": 3, "b.track": 4.5, "c.time": {"samples": [0.1] * 6}, "d": None}
ASV = {
    "result_columns": ["result", "params", "version", "samples"],
    "results": {
        "a.track": [[3], []],
        "b.track": [[4, 5.5], [["'x'", "'y'"]]],
        "c.time": [[0.1], [], "1", [[0.1, 0.2, 0.3, 0.1, 0.2, 0.3]]],
    },
}


@target("baseline", seeds=[json.dumps(COUNTERS).encode(), json.dumps(ASV).encode()], kind="json",
        tokens=(*NUMBERS, b"Infinity", b"-Infinity", b"9" * 5000))  # fmt: skip
def baseline(data: bytes) -> None:
    """A baseline of counters or a result of asv, compared with one that is known."""
    folder = scratch("baseline")
    (folder / "new.json").write_bytes(data)
    (folder / "old.json").write_text(json.dumps(COUNTERS))
    for name, value in read_state(folder / "new.json").items():
        numbers = value if isinstance(value, list) else [value]
        sane(all(n is None or not math.isinf(n) for n in numbers), f"{name} is {value}")
    for a, b in (("old", "new"), ("new", "old"), ("new", "new")):
        found = compare_histories(folder / f"{a}.json", folder / f"{b}.json")
        json.dumps(found.as_plain(), allow_nan=False)
        history_text(found, every=True)
    failing = {step.word for step in found.steps} - {"SAME", "SKIP", "FAILS", "AMBG"}
    sane(not failing, f"a state against itself: {failing}")
