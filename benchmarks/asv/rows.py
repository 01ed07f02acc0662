"""Last measurements of the harness as samples: ratios to a peer of the same round or process, and
seconds per event.

Runs are taken from `DGBENCH_RESULTS` or `results/runs`, where there are none from
`results/reference`; of every paper the newest run, together with those of the same code, machine
and preset. A series with fewer than six samples is skipped with the reason. These numbers are of
one machine, so the committed baseline does not hold them:

    nox -s asv -- --bench rows
    dgbench compare mine.json .asv/results --keep      # once; later without --keep
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[2]  # asv runs benchmarks in a folder of its own
RATIO, PER_EVENT = "ratio", "seconds per event"


def found() -> dict[str, dict[str, Any]]:
    """Every series: kind, values, and why there are too few of them, or "".

    asv starts a process for each, so what was read is kept beside asv's results until a run is
    added, taken away or goes on.
    """
    given = os.environ.get("DGBENCH_RESULTS")
    folders = [Path(given)] if given else []
    folders += [TOP / "results" / name for name in ("runs", "reference")]
    files = sorted(path for folder in folders for path in folder.rglob("rows.jsonl*"))
    state = [[str(f), f.stat().st_size, f.stat().st_mtime_ns] for f in files]
    kept = TOP / ".asv" / "rows.json"
    try:
        plain = json.loads(kept.read_text())
        if plain["state"] == state:
            return plain["series"]
    except (OSError, ValueError, KeyError):
        pass
    from dgbench.harness.samples import newest_samples

    series = {
        name: {"kind": one.kind, "values": one.values, "lack": one.lack}
        for name, one in newest_samples(TOP).items()
    }
    try:
        kept.parent.mkdir(exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=kept.parent, delete=False) as file:
            json.dump({"state": state, "series": series}, file)
        os.replace(file.name, kept)
    except OSError:
        pass  # a checkout that cannot be written is read every time
    return series


FOUND = found()


def names(kind: str) -> tuple[str, ...]:
    """Series that can be compared, and a name that is skipped with why there are not more."""
    mine = [name for name, one in FOUND.items() if one["kind"] == kind]
    enough = tuple(name for name in mine if not FOUND[name]["lack"])
    return (*enough, "fewer samples") if len(mine) > len(enough) or not mine else enough


def samples(name: str, kind: str) -> dict[str, Any]:
    """The samples of a series in asv's words."""
    if name in FOUND:
        return {"samples": FOUND[name]["values"], "number": 1}
    raise NotImplementedError(reason(kind))


def reason(kind: str) -> str:
    """Why some series have no benchmark: the one with most samples says it."""
    short = [one for one in FOUND.values() if one["kind"] == kind and one["lack"]]
    if not short:
        return "no run has such rows; start one: dgbench run"
    return f"{len(short)} series: {max(short, key=lambda one: len(one['values']))['lack']}"


class Races:
    """Seconds of a system over seconds of its peer."""

    params = names(RATIO)
    param_names = ("race",)
    unit = "system / peer"

    def setup(self, race: str) -> None:
        if race not in FOUND:
            raise NotImplementedError(reason(RATIO))  # asv: skipped

    def track_ratio(self, race: str) -> dict[str, Any]:
        return samples(race, RATIO)


class Events:
    """Seconds per event or edge."""

    params = names(PER_EVENT)
    param_names = ("series",)
    unit = "s"

    def setup(self, series: str) -> None:
        if series not in FOUND:
            raise NotImplementedError(reason(PER_EVENT))

    def track_seconds(self, series: str) -> dict[str, Any]:
        return samples(series, PER_EVENT)
