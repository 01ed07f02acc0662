"""Torn and bit-flipped files of a finished run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from dgbench.harness.store import Store
from tests.faults import checks
from tests.faults.bench import Bench
from tests.faults.campaign import fault
from tests.faults.papers import cell
from tests.faults.runner import Runner

PLAN = (cell("ok", repeats=3), cell("exit"), cell("ok", which="b"))
JSON = ("run.json", "plan.json", "provenance.json")


def _copy(bench: Bench, runner: Runner, name: str) -> Path:
    """A copy of a finished run for one fault, in place of the one before."""
    shutil.rmtree(bench.results, ignore_errors=True)
    bench.results = bench.folder / name
    path = bench.results / runner.path.name
    shutil.copytree(runner.path, path)
    return path


def _round(line: bytes) -> tuple[str, int]:
    """Group and round of a row."""
    row = json.loads(line)["row"]
    return row["group"], row.get("round", 0)


def _damaged(bench: Bench, name: str, path: Path, expected: bytes) -> None:
    """A resume after damage: what was good stays, what was not is named and measured again."""
    text = (path / "rows.jsonl").read_bytes()
    good = checks.good_lines(text)
    again = bench.run(resume=path)
    if again.code:
        raise AssertionError(f"{name}: it does not resume: {again.error}")
    bench.intact(text, again)
    rows = checks.rows_sound(again.bytes)
    checks.every_step(rows, json.loads((path / "plan.json").read_bytes()))
    before = checks.good_lines(expected)
    lost, ran = len(before) - len(good), again.summary["rows"]
    # A round that lost a row is cut: it runs anew, rivals included.
    cut = {_round(line) for line in before if line not in good}
    if not lost <= ran <= sum(_round(line) in cut for line in before):
        raise AssertionError(f"{name}: {lost} rows are damaged, {ran} ran again")
    if lost:
        bench.said(again.notes, "rows.torn")
        kept = (path / "rows.torn").read_bytes()
        for line in text.split(b"\n"):
            if line and line + b"\n" not in good:
                assert line in kept, f"{name}: a damaged line is in neither file"
    bench.clean()


@fault("rows.jsonl damaged", count=40, about="a bit, a cut, zeros, noise, a block twice: run again")
def damaged_rows(bench: Bench) -> None:
    runner = bench.run(PLAN, root=bench.folder / "original")
    whole = runner.bytes
    breaks = [place for place, byte in enumerate(whole) if byte == 10]
    for number in range(40):
        kind = "bit" if number < 24 else ("cut", "zeros", "noise", "doubled")[number % 4]
        # Line breaks are special: two rows become one.
        at = breaks[number] if number < 3 else bench.rng.randrange(1, len(whole))
        end = min(len(whole), at + bench.rng.randrange(1, 512))
        text = {
            "bit": whole[:at] + bytes([whole[at] ^ 1 << bench.rng.randrange(8)]) + whole[at + 1 :],
            "cut": whole[:at],
            "zeros": whole[:at] + bytes(end - at) + whole[end:],
            "noise": whole[:at] + bench.rng.randbytes(end - at) + whole[end:],
            "doubled": whole[:end] + whole[at:],
        }[kind]
        path = _copy(bench, runner, f"rows-{number}")
        (path / "rows.jsonl").write_bytes(text)
        with bench.fault(f"{kind} at {at}"):
            _damaged(bench, kind, path, whole)


@fault("run, plan or provenance damaged", count=24, about="harmless, or read from the copy")
def damaged_json(bench: Bench) -> None:
    runner = bench.run(PLAN, root=bench.folder / "original")
    before = _contents(runner.path)
    for number in range(24):
        name, kind = JSON[number % 3], ("bit", "cut", "empty", "zeros", "bit", "bit")[number // 4]
        path = _copy(bench, runner, f"json-{number}")
        text = bytearray((path / name).read_bytes())
        place, bit = bench.rng.randrange(len(text)), bench.rng.randrange(8)
        if kind == "bit":
            text[place] ^= 1 << bit
        else:
            text = {"cut": text[: len(text) // 2], "empty": b"", "zeros": bytes(len(text))}[kind]
        (path / name).write_bytes(text)
        with bench.fault(f"{name} {kind} byte {place}, bit {bit}"):
            now = _contents(path)
            for key, value in before.items():
                if {k: v for k, v in now[key].items() if k in value} != value:
                    raise checks.Loss(f"{name}: what was read is not what was written")
            again = bench.run(resume=path)
            if again.code or again.summary["rows"]:
                raise checks.Loss(f"it does not go on as before: {again.code} {again.error}")
            if Store.open(path).damaged:
                raise checks.Loss("the damage is still there after a resume")
            bench.intact(runner.bytes, again)
            bench.clean()


@fault("file and copy damaged", count=3, about="nothing good is left: it says so, rows stay")
def both_damaged(bench: Bench) -> None:
    runner = bench.run(PLAN, root=bench.folder / "original")
    for name in JSON:
        path = _copy(bench, runner, f"both-{name}")
        before = (path / "rows.jsonl").read_bytes()
        for file in (path / name, path / "copies" / f"{name}.copy"):
            file.write_bytes(file.read_bytes()[:30])
        with bench.fault(name):
            again = bench.run(resume=path)
            bench.said(again.error, name, "no good copy")
            assert (path / "rows.jsonl").read_bytes() == before
            bench.clean()


def _contents(path: Path) -> dict[str, dict]:
    store = Store.open(path)
    return {"run": store.info, "plan": store.read_plan(), "provenance": store.provenance()}
