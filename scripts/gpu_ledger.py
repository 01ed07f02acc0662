"""Predicted and measured time of every operator at its stated size on this device.

    python scripts/gpu_ledger.py --out ledger.jsonl                     on an H200
    python scripts/gpu_ledger.py --device cpu --small --out small.jsonl   the same code, tiny

Each row: its id and the predicted range in microseconds (of an H200), then three times of one call:
on the device between events (the median of 50 after warm-up, with cold caches unless the prediction
is of warm ones), its kernels alone as the profiler saw them in one warm call, and the whole call by
the host's clock; then how far its result is from float64 or from the CPU's, on a draw of a 500th of
the size, and a word: `met`, `slower by`, `faster by`, `not here`. The word is about the time
between events; where the kernels alone deserve another, that stands behind it. Rows in `x` are how
many times as long as the fastest form of A1 a rival takes, or how much a transfer gains.

Graphs are twins by counts: seeded, by power laws. One JSON line a row goes to --out as it is found.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from gpu_ledger_case import DRAW, Case, Family
from gpu_ledger_graphs import aggregation, differences, labels
from gpu_ledger_samples import cache, draws, large_graph, small_graph
from gpu_ledger_sequences import frames, packed, stale
from gpu_roofline import kernels_of
from gpu_timing import LATE, Rows, Timer, need_device, wait

from dgbench.runtime.errors import DgbenchError, UnsupportedError
from dgbench.runtime.statistics import median

TOLERANCE = 1e-5
AROUND = 1.2
"""A prediction of one number is met up to this factor either way."""


@dataclass(frozen=True)
class LedgerEntry:
    """One prediction.

    Attributes:
        name: id, and which form where there are several.
        what: the workload. low, high: what was predicted, None where nothing was.
        unit: us, or x for a ratio. gain: of a ratio, that more is better.
        missing: why there is nothing here to measure.
    """

    name: str
    what: str
    low: float | None
    high: float | None
    unit: str = "us"
    gain: bool = False
    missing: str = ""

    @property
    def predicted(self) -> str:
        if self.low is None:
            return "-"
        unit = "" if self.unit == "us" else self.unit
        return "-".join(f"{n:g}" for n in dict.fromkeys((self.low, self.high))) + unit


HEPTH = "22 K vertices, 84 K entries, 4 x 16, overlap 0.57"
FLICKR = "2.3 M vertices, 3.64 M entries, 8 x 2, overlap 0.53"
GDELT = "191 M edges, 12 K roots, 10 x 10"
LEDGER = [
    LedgerEntry("A1 small", HEPTH, 8, 10),
    LedgerEntry("A1 small, from memory", HEPTH, None, None),
    LedgerEntry("A1 union", FLICKR, 110, 160),
    LedgerEntry("A1 overlap and exclusive", FLICKR, 150, 215),
    LedgerEntry("A2 GE-SpMM-like", FLICKR, 6, 9, "x"),
    LedgerEntry("A2 cuSPARSE", FLICKR, 3, 6, "x"),
    LedgerEntry("A2 PyG scatter", FLICKR, 5, 8, "x"),
    LedgerEntry("A3", "indices by shuffles over broadcast, d 16", 1.3, 1.8, "x",
          missing="no kernel here exchanges indices by shuffles"),
    LedgerEntry("A4 deterministic", FLICKR, 110, 160),
    LedgerEntry("A4 atomic", FLICKR, 210, 250),
    LedgerEntry("B1 rebuild", "5.2 M entries, 0.23 changed", 35, 60),
    LedgerEntry("B1 CUB chain", "the same", 90, 120,
                missing="no form by mask, select and merge is kept"),
    LedgerEntry("B1 transfer", "the same, differences over plain", 2.6, 2.6, "x", gain=True),
    LedgerEntry("C1 one hop", "672 K edges, 1800 roots, 10 recent", 8, 8),
    LedgerEntry("C1 two hops", f"{GDELT} recent", 45, 45),
    LedgerEntry("C1 thread per slot", f"{GDELT} recent", 65, 65,
          missing="a search serves all slots of a root"),
    LedgerEntry("C2 fences, recent", f"{GDELT}, records mapped", 900, 900),
    LedgerEntry("C2 fences, uniform", f"{GDELT}, records mapped", 3000, 3000),
    LedgerEntry("C2 search over the link", f"{GDELT} recent, records mapped", 3500, 5000),
    LedgerEntry("C3", "100 K edges both ways into 672 K", 35, 70),
    LedgerEntry("D1 all hits", "198 K rows of 744 B", 75, 80),
    LedgerEntry("D1 30 % misses", "198 K rows of 744 B", 950, 1100),
    LedgerEntry("D1 evict", "59 K of 574 K by age", 12, 12),
    LedgerEntry("E1 half of 1e6", "by weight", 20, 20),
    LedgerEntry("E1 half of 1e8", "by weight", 700, 700),
    LedgerEntry("E1 frontier draw", "10 K slots, 100 at once", 1.25, 1.25),
    LedgerEntry("F1", "43 M vertex-steps, 27 M edges, a sweep", 800, 1000),
    LedgerEntry("G1 eager", "170 vertices, 16 steps, H 32, a training step", 8000, 8000),
    LedgerEntry("G1 graph", "the same", 1200, 1200),
    LedgerEntry("G1 fused", "the same", 55, 55),
    LedgerEntry("G2 3xTF32", "289 x 149 K, H 32, forward", 8000, 8000,
          missing="the scans use no matrix unit"),
    LedgerEntry("G2 fp32 tile", "289 x 149 K, H 32, forward, gates kept", 15_000, 15_000),
    LedgerEntry("H1 distances", "1e7 x 64", 1250, 1250),
    LedgerEntry("H1 pack 20 %", "1e7 x 64", 400, 400),
]  # fmt: skip
FAMILIES: list[tuple[tuple[str, ...], Family]] = [
    (("G1",), frames), (("A",), aggregation), (("B",), differences),
    (("C1 one", "C3"), small_graph), (("D",), cache), (("E",), draws), (("F",), labels),
    (("H",), stale), (("G2",), packed), (("C1 two", "C2"), large_graph),
]  # fmt: skip
"""Families of cases by the prefixes of their rows' ids, cheapest first."""
BASE = ("A1 union", "A1 overlap and exclusive")
NOT_HERE = "not here"
ERRORS = (DgbenchError, RuntimeError, MemoryError)


def word(entry: LedgerEntry, measured: float) -> str:
    """Outcome of a prediction: `met`, `slower by`, `faster by`, or no prediction."""
    if entry.low is None or entry.high is None:
        return "nothing was predicted"
    low, high = entry.low, entry.high
    if low == high:
        low, high = low / AROUND, high * AROUND
    if low <= measured <= high:
        return "met"
    ratio = entry.low / measured if measured < low else measured / entry.high
    worse = (measured < low) if entry.gain else (measured > high)
    return f"{'slower' if worse else 'faster'} by {ratio:.2g}x"


def timed(case: Case, device: str, small: bool) -> dict[str, Any]:
    """The times of a case in microseconds."""
    rounds = 3 if small else 50
    if case.ways is not None:
        other, ours = case.ways()
        return {"us": 1e6 * ours, "plain_us": 1e6 * other, "ratio": other / ours}
    scale = 1e6 / case.per
    timer = Timer(device, rounds, cold=not case.warm)
    between = timer.on_device(case.run, case.before)
    whole = Timer(device, min(rounds, 20), most_s=1.0).of_call(case.run, case.before)
    row: dict[str, Any] = {
        "us": scale * median(between), "call_us": scale * median(whole), "rounds": len(between),
        "samples_us": [scale * second for second in between],
    }  # fmt: skip
    if device == "cuda":
        if case.before is not None:
            case.before()
            wait(device)
        kernels = kernels_of(case.run, {})
        row["kernels_us"] = sum(kernel.us for kernel in kernels) / case.per
        row["launches"] = sum(kernel.count for kernel in kernels)
    return row


def cases(family: Family, share: float, device: str) -> Iterator[tuple[str, Case | Exception]]:
    """The cases of a family; in place of one that cannot be made, why not."""
    made = family(share, device)
    name = ""
    while True:
        try:
            name, case = next(made)
        except StopIteration:
            return
        except ERRORS as error:
            yield name, error
            return
        yield name, case


def deviations(family: Family, device: str) -> dict[str, float | str]:
    """Deviation of each row's result from its reference, on a draw; or the error instead."""
    found: dict[str, float | str] = {}
    for name, case in cases(family, DRAW, device):
        if isinstance(case, Exception):
            found[f"after {name}"] = said(case)
            continue
        try:
            found[name] = case.deviation()
        except ERRORS as error:
            found[name] = said(error)
    return found


def said(error: Exception) -> str:
    """An error in a row; what is not supported is not here, and no failure."""
    if isinstance(error, UnsupportedError):
        return f"{NOT_HERE}: {error}"
    return f"{type(error).__name__}: {str(error)[:200]}"


class Ledger:
    """Takes rows as they are found, and fills in the words."""

    def __init__(self, out: Rows, device: str) -> None:
        self.out, self.device = out, device
        self.entries = {entry.name: entry for entry in LEDGER}
        kept = out.kept("id")
        self.left = {e.name: e for e in LEDGER if not e.missing and e.name not in kept}
        self.base = [row["us"] for name, row in kept.items() if name in BASE and "us" in row]

    def add(self, name: str, deviation: float | str | None, **row: Any) -> None:
        entry = self.left.pop(name)
        if name in BASE and "us" in row:
            self.base.append(row["us"])
        if entry.unit == "x" and "us" in row and "ratio" not in row and self.base:
            row["ratio"] = row["us"] / min(self.base)
        failed = row.get("failed", "")
        if isinstance(deviation, str):
            failed = failed or deviation
        elif deviation is not None and not deviation <= TOLERANCE:
            failed = f"WRONG: {deviation:.1e} from the reference"
        if failed:
            self.out.failed += not failed.startswith((LATE, NOT_HERE))
            row["word"] = row["failed"] = failed
        else:
            row["word"] = self._word(entry, row)
        self._write(entry, {"deviation": deviation, **row})

    def _word(self, entry: LedgerEntry, row: dict[str, Any]) -> str:
        if self.device == "cpu":
            return f"{NOT_HERE}: an H200 was predicted"
        value = row.get("ratio") if entry.unit == "x" else row["us"]
        if value is None:
            return f"{NOT_HERE}: nothing to compare with was measured"
        found = word(entry, value)
        if entry.unit == "us" and (alone := word(entry, row["kernels_us"])) != found:
            found = f"{found} (kernels alone: {alone})"
        return found

    def missing(self) -> None:
        """Rows of what there is no form of, and of what no family has given."""
        for entry in LEDGER:
            if entry.missing:
                self._write(entry, {"word": f"{NOT_HERE}: {entry.missing}"})
        for entry in list(self.left.values()):
            self._write(entry, {"word": f"{NOT_HERE}: no form of it on this device"})

    def _write(self, entry: LedgerEntry, row: dict[str, Any]) -> None:
        times = "".join(
            f"{row[key]:11.1f}" if key in row else f"{'-':>11}"
            for key in ("us", "kernels_us", "call_us")
        )
        apart = row.get("deviation", "-")
        apart = f"{apart:.1e}" if isinstance(apart, float) else "-"
        ratio = f"{row['ratio']:.2f}x " if "ratio" in row else ""
        note = f"; {row['note']}" if row.get("note") else ""
        self.out.add(
            f"{entry.name:26}{entry.predicted:>10}{times}{apart:>9}  {ratio}{row['word']}{note}",
            id=entry.name, what=entry.what, low=entry.low, high=entry.high, unit=entry.unit,
            device=self.device, **row,
        )  # fmt: skip


def play(ledger: Ledger, ids: tuple[str, ...], family: Family, device: str, small: bool) -> None:
    """Compare a family on a draw, then time it at its size; ids: what its rows begin with."""
    if not any(name.startswith(ids) for name in ledger.left):
        return None
    apart = deviations(family, device)

    def give_up(why: str) -> None:
        """The same word for all that would have come."""
        for late in [name for name in ledger.left if name.startswith(ids)]:
            ledger.add(late, apart.get(late), failed=why)

    if ledger.out.over:  # before the graphs are made at their size
        return give_up(LATE)
    for name, case in cases(family, DRAW if small else 1.0, device):
        if isinstance(case, Exception):
            return give_up(said(case))
        if ledger.out.over:
            return give_up(LATE)
        if name not in ledger.left:
            continue
        try:
            row = timed(case, device, small)
        except ERRORS as error:
            row = {"failed": said(error)}
        ledger.add(name, apart.get(name, "its draw could not be made"), note=case.note, **row)
        del case
    return None


def wanted(ids: tuple[str, ...], only: list[str]) -> bool:
    """Return True if a family may hold one of the requested ids."""
    return any(a.startswith(b) or b.startswith(a) for a in ids for b in only)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, help="file for the rows, one JSON a line")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--small", action="store_true", help="a 500th of all sizes, 3 rounds")
    parser.add_argument("--only", nargs="*", default=[], help="families with ids such as A B1 G2")
    parser.add_argument("--seconds", type=float, default=120, help="begin nothing after this long")
    options = parser.parse_args()
    need_device(options.device)
    torch.backends.cuda.matmul.allow_tf32 = False
    out = Rows(options.out, options.seconds)
    ledger = Ledger(out, options.device)
    name = torch.cuda.get_device_name() if options.device == "cuda" else "the CPU"
    print(f"on {name}, predicted for an H200; microseconds\n{'id':26}{'predicted':>10}"
          f"{'device':>11}{'kernels':>11}{'call':>11}{'apart':>9}  word")  # fmt: skip
    for ids, family in FAMILIES:
        if options.only and not wanted(ids, options.only):
            continue
        if out.over:
            break
        play(ledger, ids, family, options.device, options.small)
        if options.device == "cuda":
            torch.cuda.empty_cache()
    if not options.only:
        if out.over:
            for late in list(ledger.left):
                ledger.add(late, None, failed=LATE)
        ledger.missing()
    sys.exit(out.status)


if __name__ == "__main__":
    main()
