"""Pages of systems: what each is, what it can do, and every race it took part in."""

from __future__ import annotations

import inspect
import json
import logging
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, get_args, get_type_hints

import msgspec

import dgbench.harness
from dgbench.harness.figures.style import side, with_interval
from dgbench.harness.plugins import DescribedSystem, PluginError
from dgbench.harness.report.contests import (
    RacePoint,
    all_races,
    by_figure,
    rest_words,
    sentence,
    short,
    tally,
)
from dgbench.harness.report.pages import common
from dgbench.harness.report.reuse import Sketch
from dgbench.harness.report.run import RunData
from dgbench.harness.report.site import SiteData
from dgbench.harness.report.subjects import (
    Systems,
    by_experiment,
    count_cells,
    datasets_of,
    experiment_place,
    page_of,
)
from dgbench.lab.charts import failure_of
from dgbench.systems.base.interactions import InteractionWorkload
from dgbench.systems.base.sequences import SequenceWorkload
from dgbench.systems.base.stream_data import StreamWorkload
from dgbench.systems.base.timeline import TimelineWorkload
from dgbench.systems.base.workload import Workload

log = logging.getLogger(__name__)

WORKLOADS: Final = (
    Workload,
    TimelineWorkload,
    SequenceWorkload,
    StreamWorkload,
    InteractionWorkload,
)
WRONG: Final = 1e-5
"""Deviation above which an exact technique is wrong."""
KINDS: Final = {
    "paper": "a paper's system",
    "baseline": "baseline",
    "reference": "reference",
    "unknown": "not installed here",
}


def pages(site: SiteData, env: Any) -> dict[str, str]:
    """`systems/index.html` and a page per system: installed ones, and all that rows name.

    In the report of one run, installed systems that took no part have no page.
    """
    systems = Systems.named_in(site)
    races = all_races(site, systems)
    rows = _rows_by_system(site, systems)
    papers = {p.paper.system: p for p in site.papers}
    named = {*rows, *(r.own for r in races), *papers}
    installed = [*systems.loaded, *systems.broken]
    shown = [n for n in installed if site.merged or n in named]
    shown += sorted(named - set(installed))
    entries = {}
    for name in shown:
        mine = [r for r in races if r.own == name]
        entries[name] = _entry(site, systems, name, mine, rows.get(name, []), papers.get(name))
    ordered = sorted(entries.values(), key=lambda e: (list(KINDS).index(e["kind"]), e["title"]))
    texts = {
        "systems/index.html": env.get_template("systems.html.j2").render(
            **common(site, "../", "systems"),
            entries=[e for e in ordered if e["kind"] != "unknown"],
            unknown=[e for e in ordered if e["kind"] == "unknown"],
            idle=[systems.title(n) for n in installed if n not in shown],
        )
    }
    template = env.get_template("system.html.j2")
    for entry in ordered:
        runs = [run for run in site.runs if run.slug in entry["runs"]]
        texts[page_of("systems", entry["name"])] = template.render(
            **common(site, "../", "systems", runs), system=entry
        )
    return texts


def _rows_by_system(site: SiteData, systems: Systems) -> dict[str, list[tuple[RunData, Any]]]:
    """Rows of each system: those that name it, or else those of its paper that name none."""
    owner = {p.name: p.paper.system for p in site.papers}
    found: dict[str, list[tuple[RunData, Any]]] = {}
    for run in site.runs:
        for row in run.rows:
            if name := row.system or owner.get(row.paper, ""):
                found.setdefault(name, []).append((run, row))
    return found


def _entry(
    site: SiteData,
    systems: Systems,
    name: str,
    races: list[RacePoint],
    rows: list[tuple[RunData, Any]],
    paper: Any,
) -> dict[str, Any]:
    system, broken = systems.loaded.get(name), systems.broken.get(name)
    others = [r for r in races if r.other != name]
    itself = [r for r in races if r.other == name]
    title = systems.title(name)
    steps = _ablations(site, systems, name)
    counts = tally(others)
    return {
        "name": name,
        "title": title,
        "href": page_of("systems", name),
        "kind": system.kind if system is not None else "unknown",
        "kind_words": KINDS[system.kind if system is not None else "unknown"],
        "about": system.about if system is not None else "",
        "provenance": system.provenance if system is not None else "",
        "broken": broken,
        "paper": paper,
        "headline": sentence(title, others, systems.loaded),
        "counts": counts,
        "others": _apart(systems, others),
        "total": len(others) - counts["projected"] - counts["smoke"],
        "rest": rest_words(counts),
        "lines": [_placed(site, line) for line in by_figure(others)],
        "races": others,
        "itself": itself,
        "itself_counts": rest_words(tally(itself)),
        "techniques": _techniques(system, steps),
        "steps": [s for s in steps if not s["technique"]],
        "supports": supports(system) if system is not None else [],
        "cuda": _cuda_words(),
        "devices": _devices(rows),
        "deviations": _deviations(rows),
        "liveness": _liveness(rows),
        "notes": _notes(rows),
        "readings": _readings(paper),
        "datasets": _datasets(rows),
        "uses": _uses(site, rows),
        "papers": sorted({row.paper for _, row in rows} | {race.paper for race in races}),
        "counters": _counters(name),
        "rows": len(rows),
        "runs": list(dict.fromkeys(run.slug for run, _ in rows)),
        "href_of": partial(page_of, "systems"),
        "short": short,
    }


def _apart(systems: Systems, races: Sequence[RacePoint]) -> dict[str, Any]:
    """Races against what is no installed system, where there are races of both sorts."""
    apart = [r for r in races if r.other not in systems.loaded and r.outcome != "projected"]
    if len(apart) == len(races):
        apart = []
    return {"total": len(apart), "counts": tally(apart), "rest": rest_words(tally(apart))}


def _placed(site: SiteData, line: dict[str, Any]) -> dict[str, Any]:
    first = line["first"]
    return line | {"place": experiment_place(site, first.paper, first.experiment)}


def _ablations(site: SiteData, systems: Systems, name: str) -> list[dict[str, Any]]:
    """Steps of the ablations of a system, with the switch that each is, where it is one."""
    system = systems.loaded.get(name)
    switches = {t.name for t in system.techniques} if system is not None else set()
    steps = []
    for paper in site.papers:
        for run, section in paper.sections:
            for part in section.sections:
                for drawn in part.figures:
                    sketch = part.sketch(drawn.name)
                    if drawn.kind != "ablation" or _ablated(paper, sketch, systems) != name:
                        continue
                    contenders = sketch.contenders if sketch is not None else {}
                    for point in drawn.points:
                        if point["step"] and point["technique"]:
                            words = str(point["technique"])
                            means = contenders.get(words)
                            switch = means.switch if means is not None else words
                            step = _step(run, paper, part, point)
                            steps.append(step | {"technique": switch if switch in switches else ""})
    return steps


def _ablated(paper: Any, sketch: Sketch | None, systems: Systems) -> str:
    """Whose ablation a figure is: what its spec says, or else the paper's system."""
    said = str(sketch.options.get("system", "")) if sketch is not None else ""
    return said if said in systems else paper.paper.system


def _step(run: RunData, paper: Any, part: Any, point: dict[str, Any]) -> dict[str, Any]:
    gain = point.get("gain")
    text = word = ""
    if point.get("failed"):
        failure = failure_of(point)
        word = failure.words({failure.status: failure.status.replace("-", " ")})
    elif run.smoke:
        word = "smoke run, no measurement"
    elif gain is not None:
        low, high = point.get("gain_low"), point.get("gain_high")
        text = with_interval(gain, low, high)
        found = "same" if point.get("same") else side(
            {"value": gain, "low": low, "high": high}, run.floor(paper.paper, part.name)
        )  # fmt: skip
        word = "" if found in ("faster", "slower") else found
        word = word or ("" if low is not None else "no interval")
    return {
        "words": str(point["technique"]),
        "workload": str(point.get("panel") or ""),
        "gain": text,
        "word": word,
        "alone": f"{point['alone']:.3g}x alone" if point.get("alone") else "",
        "removed": f"{point['removed']:.3g}x lost when removed" if point.get("removed") else "",
        "quality": point.get("quality") or "",
        "exact": point.get("exact", True),
        "run": run,
        "row": next(iter(point.get("row_ids") or ()), ""),
        "place": {
            "title": f"{paper.title}, {part.title}",
            "href": f"papers/{paper.name}.html#exp-{part.name}",
        },
    }


def _techniques(system: Any, steps: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    if system is None:
        return []
    return [
        {"switch": t, "steps": [s for s in steps if s["technique"] == t.name]}
        for t in system.techniques
    ]


def supports(system: Any) -> list[dict[str, Any]]:
    """Results of `unsupported` for every known kind of workload, one setting changed at a time.

    A kind that `unsupported` is not annotated with is not asked for, and one that `open` does not
    take is not supported, whatever is said of it. A third party's system is asked in its process.
    """
    if isinstance(system, DescribedSystem):
        try:
            return system.supports()
        except PluginError as error:  # its page must still be written
            log.warning("system '%s' cannot say what it supports: %s", system.name, error)
            return []
    written = f"it is written for {' and '.join(_kinds(system.open)) or 'other workloads'}"
    found = []
    for kind in WORKLOADS:
        about = (inspect.getdoc(kind) or "").partition("\n")[0]
        entry = {"kind": kind.__name__, "about": about, "can": [], "cannot": [], "why": ""}
        if _takes(system.unsupported, kind):
            _ask_all(system, kind, entry)
            reasons = list(dict.fromkeys(why for _, why in entry["cannot"]))
            entry["why"] = "; ".join(reasons)
        if not _takes(system.unsupported, kind) or (entry["can"] and not _takes(system.open, kind)):
            entry |= {"can": [], "cannot": [], "why": written}
        found.append(entry)
    return found


def _kinds(method: Any) -> list[str]:
    """The known kinds of workload that a method is annotated with; [] for none in particular."""
    parameter = inspect.signature(method).parameters.get("workload")
    words = set(re.findall(r"\w+", str(parameter.annotation))) if parameter is not None else ()
    return [kind.__name__ for kind in WORKLOADS if kind.__name__ in words]


def _takes(method: Any, kind: type) -> bool:
    said = _kinds(method)
    return not said or kind.__name__ in said


def _ask_all(system: Any, kind: type, entry: dict[str, Any]) -> None:
    hints = get_type_hints(kind)
    models = get_args(hints["model"])
    for model in models:
        plain = kind(dataset="none", model=model)
        reasons = _ask(system, plain)
        if reasons:
            entry["cannot"].append((model, "; ".join(reasons)))
            continue
        entry["can"].append(model)
        for field in msgspec.structs.fields(kind):
            if field.name in ("model", "source", "dataset"):
                continue
            for choice in _choices(hints[field.name], getattr(plain, field.name)):
                changed = msgspec.structs.replace(plain, **{field.name: choice})
                if reasons := _ask(system, changed):
                    what = f"{model} with {field.name} = {choice}"
                    entry["cannot"].append((what, "; ".join(reasons)))


def _choices(hint: Any, default: Any) -> list[Any]:
    """The other values of a setting that has a few."""
    values = (True, False) if hint is bool else get_args(hint)
    if not all(isinstance(v, str | bool) for v in values):
        return []
    return [v for v in values if v != default]


def _ask(system: Any, workload: Any) -> list[str]:
    try:
        return [str(reason) for reason in system.unsupported(workload, "cpu")]
    except Exception as error:  # plugin code: its page must still be written
        return [f"it cannot say: {type(error).__name__}: {error}"]


def _cuda_words() -> str:
    import torch

    from dgbench.kernels_cuda.build_info import build_info

    if not torch.cuda.is_available():
        return (
            "It was asked for a CPU only: these pages were built without a CUDA device. Which "
            "devices its rows ran on stands below."
        )
    usable = build_info()["cuda"].get("usable")
    return (
        f"These pages were built beside a CUDA device; operators {'' if usable else 'not '}built."
    )


def _devices(rows: Sequence[tuple[RunData, Any]]) -> list[dict[str, Any]]:
    """Cells by machine and device."""
    groups: dict[tuple[str, str], list[tuple[RunData, Any]]] = {}
    for run, row in rows:
        groups.setdefault((run.machine_slug, row.device), []).append((run, row))
    return [
        {"run": pairs[0][0], "device": device, "cells": count_cells(row for _, row in pairs)}
        for (_, device), pairs in groups.items()
    ]


def _deviations(rows: Sequence[tuple[RunData, Any]]) -> list[dict[str, Any]]:
    """The largest deviation from the reference per quantity, the largest first."""
    worst: dict[str, tuple[float, RunData, Any]] = {}
    count: dict[str, int] = {}
    for run, row in rows:
        for key, value in row.deviation.items():
            count[key] = count.get(key, 0) + 1
            if key not in worst or abs(value) > worst[key][0]:
                worst[key] = (abs(value), run, row)
    found = [
        {"what": key, "value": value, "run": run, "row": row, "n": count[key],
         "large": value > WRONG}
        for key, (value, run, row) in worst.items()
    ]  # fmt: skip
    return sorted(found, key=lambda d: -d["value"])


def _liveness(rows: Sequence[tuple[RunData, Any]]) -> list[dict[str, Any]]:
    """The smallest of each measure of how alive what was compared is, by name."""
    least: dict[str, tuple[float, RunData, Any]] = {}
    count: dict[str, int] = {}
    for run, row in rows:
        for name, value in ((n, v) for check in row.checks for n, v in check.alive.items()):
            count[name] = count.get(name, 0) + 1
            if name not in least or value < least[name][0]:
                least[name] = value, run, row
    return [
        {"what": name, "value": value, "run": run, "row": row, "n": count[name]}
        for name, (value, run, row) in sorted(least.items())
    ]


def _notes(rows: Sequence[tuple[RunData, Any]], most: int = 20) -> dict[str, Any]:
    """Notes of its rows, the most frequent first."""
    found: dict[str, list] = {}
    for run, row in rows:
        for note in row.notes:
            found.setdefault(str(note), [0, run, row])[0] += 1
    ordered = sorted(found.items(), key=lambda item: -item[1][0])
    shown = [{"text": t, "n": n, "run": run, "row": row} for t, (n, run, row) in ordered[:most]]
    return {"shown": shown, "more": max(0, len(ordered) - most)}


def _readings(paper: Any) -> list[tuple[str, str]]:
    """(where, text): what was read differently from the paper or filled in."""
    if paper is None:
        return []
    found = [("", text) for text in paper.paper.readings]
    return found + [(e.title, e.reading) for e in paper.paper.experiments if e.reading]


def _datasets(rows: Sequence[tuple[RunData, Any]]) -> list[dict[str, Any]]:
    """Datasets that it ran on."""
    groups: dict[str, list[tuple[RunData, Any]]] = {}
    for run, row in rows:
        for name in datasets_of(row):
            groups.setdefault(name, []).append((run, row))
    return [
        {
            "name": name,
            "href": page_of("datasets", name),
            "twin": any(row.data.get("twin") for _, row in pairs),
            "cells": count_cells(row for _, row in pairs),
            "machines": list({run.machine_slug: run for run, _ in pairs}.values()),
        }
        for name, pairs in sorted(groups.items())
    ]


def _uses(site: SiteData, rows: Sequence[tuple[RunData, Any]]) -> list[dict[str, Any]]:
    """Experiments that have rows of it."""
    return [
        {
            "place": experiment_place(site, paper, experiment),
            "run": run,
            "cells": count_cells(mine),
            "row": mine[0],
        }
        for (_, paper, experiment), (run, mine) in by_experiment(rows).items()
    ]


def _counters(name: str) -> dict[str, Any]:
    """Counters that the history suite tracks for a system, with what is committed for each."""
    path = Path(dgbench.harness.__file__).resolve().parents[1] / "benchmarks/asv/baseline.json"
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {"here": False, "found": []}
    prefix, end = f"counters.Counters.track_count('{name}: ", "')"
    return {
        "here": True,
        "found": [
            {"what": key.removeprefix(prefix).removesuffix(end), "value": value}
            for key, value in kept.items()
            if key.startswith(prefix)
        ],
    }
