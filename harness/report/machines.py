"""Pages of machines: identity, measured limits, noise, what was throttled, what could not run."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from dgbench.harness.claims.verdict import GLYPHS
from dgbench.harness.report.failures import without_result
from dgbench.harness.report.limits import LIMITS
from dgbench.harness.report.pages import common
from dgbench.harness.report.run import FAILED, TALLIED, RunData, is_limits
from dgbench.harness.report.site import MachineOnSite, SiteData
from dgbench.harness.report.subjects import experiment_place
from dgbench.harness.report.words import own_dataset
from dgbench.lab.probes import probe

LIMIT_WORDS: Final = {limit.name: f"{limit.words}, {limit.unit}" for limit in LIMITS}
LACKS: Final = {
    "no-gpu": "On a machine with a CUDA device",
    "not-built": "Where the operators are built",
    "not-supported": "The system refuses it wherever it runs",
    "skipped": "On a machine that has what the reason names",
    "oom": "On a machine with more memory",
    "time": "On a faster machine, or with a longer limit",
    "crash": "Once the cause is mended",
    "check": "Once the wrong result is mended",
    "void": "Once its result is compared with a reference and right",
}
THROTTLE: Final = probe("gpu_throttle")
OTHERS: Final = probe("other_cpu_percent")
DOCTOR: Final = "doctor.json"
"""`dgbench doctor --json`, where somebody kept it in a run's folder."""


def pages(site: SiteData, env: Any) -> dict[str, str]:
    """`machines/index.html` and a page per machine."""
    entries = [_entry(site, machine) for machine in site.machines]
    texts = {
        "machines/index.html": env.get_template("machines.html.j2").render(
            **common(site, "../", "machines"), entries=entries
        )
    }
    template = env.get_template("machine.html.j2")
    for entry in entries:
        texts[f"machines/{entry['slug']}.html"] = template.render(
            **common(site, "../", "machines", site.machine(entry["slug"]).runs), m=entry
        )
    return texts


def _entry(site: SiteData, machine: MachineOnSite) -> dict[str, Any]:
    runs = machine.runs
    tallies = [run.tally() for run in runs]
    counts = {word: sum(t[word] for t in tallies) for word in TALLIED}
    noises = [run.noise for run in runs if run.noise is not None]
    return {
        "slug": machine.slug,
        "href": f"machines/{machine.slug}.html",
        "name": machine.name,
        "device": machine.device,
        "headline": _headline(machine, counts),
        "facts": _facts(machine.facts),
        "memory": machine.facts.get("memory_bytes"),
        "differ": _differ(runs),
        "runs": [_run(run, tally) for run, tally in zip(runs, tallies, strict=True)],
        "counts": counts,
        "total": sum(counts.values()),
        "limits": _limits(runs),
        "newest": machine.limits,
        "noises": noises,
        "most_noise": max(noises, default=0.0),
        "quietest": min(noises, default=None),
        "doctor": _doctor(runs),
        "throttled": _throttled(runs),
        "disturbed": _disturbed(runs),
        "missing": list(_missing(site, runs)),
        "claims": _claims(site, machine),
        "words": LIMIT_WORDS.get,
        "number": limit_number,
    }


def _headline(machine: MachineOnSite, counts: Mapping[str, int]) -> str:
    gpu = "" if machine.device != "cpu" else " without a GPU"
    total = sum(counts.values())
    if not total:
        return f"{machine.name}{gpu}: nothing ran"
    failed = f", {counts['failed']} failed" if counts["failed"] else ", none failed"
    void = f", {counts['void']} void" if counts["void"] else ""
    return f"{machine.name}{gpu}: {counts['ok']} of {total} cells ran{failed}{void}"


def limit_number(value: float) -> str:
    """`25.47`, `3,960`: four digits, or whole numbers."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _facts(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Identity as (word, text), as kept in the provenance."""
    cpu = facts.get("cpu", {})
    found = [
        ("processor", cpu.get("model")),
        ("cores", _cores(cpu)),
        ("vector units", ", ".join(cpu.get("flags") or ()) or None),
        ("frequency governor", cpu.get("governor")),
        ("memory", _bytes(facts.get("memory_bytes"))),
        ("memory that may be used", _bytes(facts.get("memory_limit_bytes"))),
        ("system", facts.get("system")),
        ("architecture", facts.get("architecture")),
        ("Python", facts.get("python")),
        ("compiler", facts.get("compiler")),
        ("nvcc", facts.get("nvcc")),
    ]
    gpus = facts.get("gpus") or []
    for number, gpu in enumerate(gpus):
        found.append((f"GPU {number}" if len(gpus) > 1 else "GPU", _gpu(gpu)))
    if not gpus:
        found.append(("GPU", "none was seen"))
    return [(word, str(text) if text else "not kept") for word, text in found]


def _cores(cpu: Mapping[str, Any]) -> str:
    words = ("cores", "threads", "usable")
    return ", ".join(f"{cpu[word]} {word}" for word in words if cpu.get(word))


def _bytes(value: Any) -> str:
    return f"{value / 2**30:.1f} GiB ({value:,} bytes)" if isinstance(value, int | float) else ""


def _gpu(gpu: Mapping[str, Any]) -> str:
    watts = gpu.get("power_limit_mw")
    parts = [
        str(gpu.get("name", "a GPU")),
        _bytes(gpu.get("memory_bytes")),
        f"driver {gpu['driver']}" if gpu.get("driver") else "",
        f"power limit {watts / 1000:g} W" if isinstance(watts, int | float) else "",
        f"at most {gpu['max_sm_clock_mhz']} MHz" if gpu.get("max_sm_clock_mhz") else "",
        f"PCIe {gpu['pcie_generation']} x{gpu.get('pcie_width', '?')}"
        if gpu.get("pcie_generation")
        else "",
        f"compute capability {gpu['compute_capability']}" if gpu.get("compute_capability") else "",
    ]
    return ", ".join(part for part in parts if part)


def _differ(runs: Sequence[RunData]) -> list[tuple[str, list[tuple[str, list[RunData]]]]]:
    """Facts that are not the same in all runs: then they are not one machine in every respect.

    Returns:
        (fact, values with the runs that have each).
    """
    if len(runs) < 2:
        return []
    each = [dict(_facts(run.machine)) | _packages(run) for run in runs]
    keys = dict.fromkeys(key for facts in each for key in facts)
    found = []
    for key in keys:
        values: dict[str, list[RunData]] = {}
        for run, facts in zip(runs, each, strict=True):
            values.setdefault(facts.get(key, "not kept"), []).append(run)
        if len(values) > 1:
            found.append((key, list(values.items())))
    return found


def _newest(run: RunData) -> Mapping[str, Any]:
    kept = list(run.store.provenance().values())
    return kept[-1] if kept else {}


def _packages(run: RunData) -> dict[str, str]:
    packages = _newest(run).get("packages") or {}
    return {f"package {name}": str(version) for name, version in packages.items()}


def _run(run: RunData, tally: Mapping[str, int]) -> dict[str, Any]:
    newest = _newest(run)
    code = newest.get("code") or {}
    commit = str(code.get("commit") or "")[:12]
    return {
        "run": run,
        "date": str(run.info.get("started", ""))[:16].replace("T", " "),
        "papers": ", ".join(run.papers) or "none",
        "preset": str(run.info.get("preset", "")) or "not kept",
        "duration": run.duration or "not kept",
        "noise": run.noise,
        "tally": tally,
        "total": sum(tally.values()),
        "commit": commit or str(code.get("note") or "not kept"),
        "dirty": bool(code.get("dirty")),
        "torch": str((newest.get("packages") or {}).get("torch") or "not kept"),
    }


def _limits(runs: Sequence[RunData]) -> dict[str, Any]:
    """Measured limits: a column per run, newest first."""
    keys = dict.fromkeys(key for run in runs for key in run.limits)
    rows = [r for run in runs for r in run.everything if is_limits(r) and r.ok]
    ids = {r.run: r.id for r in rows}
    measured = [run for run in runs if run.limits]
    return {
        "runs": [(run, ids.get(run.store.run, "")) for run in measured],
        "rows": [(LIMIT_WORDS[k], [run.limits.get(k) for run in measured]) for k in keys],
        "none": [run for run in runs if not run.limits],
    }


def _doctor(runs: Sequence[RunData]) -> dict[str, Any] | None:
    """The newest findings of `dgbench doctor` that were kept with a run."""
    for run in runs:
        try:
            kept = json.loads((run.store.path / DOCTOR).read_text(encoding="utf-8"))
            checks = [{k: str(c.get(k, "")) for k in ("name", "state", "found", "hint")}
                      for c in kept]  # fmt: skip
        except (OSError, ValueError, AttributeError, TypeError):
            continue
        return {"run": run, "checks": sorted(checks, key=lambda c: c["state"] == "ok")}
    return None


def _throttled(runs: Sequence[RunData]) -> dict[str, Any]:
    """Rows during which a GPU was throttled; `asked` is how many rows were watched."""
    asked, found, refused = 0, [], ""
    for run in runs:
        for row in run.everything:
            told = THROTTLE.words(row)
            if told is not None:
                asked += 1
                if told:
                    found.append({"run": run, "row": row, "why": ", ".join(told)})
            refused = THROTTLE.refusal(row) or refused
    return {"asked": asked, "rows": found, "refused": refused}


def _disturbed(runs: Sequence[RunData]) -> list[dict[str, Any]]:
    """Per run, how much of the processor others took while cells ran."""
    found = []
    for run in runs:
        told = [(value, row) for row in run.everything if (value := OTHERS.read(row)) is not None]
        if told:
            worst, row = max(told, key=lambda pair: pair[0])
            middle = statistics.median(value for value, _ in told)
            found.append({"run": run, "n": len(told), "median": middle, "worst": worst, "row": row})
    return found


def _missing(site: SiteData, runs: Sequence[RunData]) -> Iterator[dict[str, Any]]:
    """Cells that did not run or failed, by run, with a command for a suitable machine."""
    for run in runs:
        status = {row.id: row for row in run.rows}
        for cell in without_result(run.rows):
            row = status[cell["id"]]
            device = "cuda" if row.status == "no-gpu" else row.device
            preset = f" --preset {row.preset}" if row.preset != "quick" else ""
            where = f"{row.paper}/{row.experiment}{own_dataset(row)}"
            command = f"dgbench run {where}{preset} --device {device}"
            yield {
                **cell,
                "run": run,
                "place": experiment_place(site, row.paper, row.experiment),
                "where": LACKS.get(row.status, "Elsewhere"),
                "command": "" if row.status == "not-supported" else command,
                "broken": row.status in FAILED,
                "elsewhere": _elsewhere(site, run, row),
            }


def _elsewhere(site: SiteData, here: RunData, row: Any) -> list[tuple[RunData, str]]:
    """Other machines of the site on which the same cell worked, with a row of it."""
    found = []
    for run in site.runs:
        if run.machine_slug == here.machine_slug:
            continue
        alike = next((other for other in run.rows if _does(other, row)), None)
        if alike is not None:
            found.append((run, alike.id))
    return found


def _does(other: Any, row: Any) -> bool:
    """Return True if a row has another's missing result: the same cell on the wanted device."""
    keys = ("paper", "experiment", "params", "group")
    wanted = "cuda" if row.status == "no-gpu" else row.device
    alike = all(getattr(other, key) == getattr(row, key) for key in keys)
    return alike and other.ok and other.device == wanted


def _claims(site: SiteData, machine: MachineOnSite) -> list[dict[str, Any]]:
    """Per paper that ran here: verdicts by glyph, and the reasons of those that have none."""
    found = []
    for paper in site.papers:
        mine = [
            (entry, verdict)
            for entry in paper.claims
            for run, verdict in entry.all
            if run.machine_slug == machine.slug
        ]
        if not mine:
            continue
        reasons: dict[str, list[str]] = {}
        counts = dict.fromkeys(GLYPHS, 0)
        for entry, verdict in mine:
            counts[verdict.glyph] += 1
            if verdict.glyph == "-":
                reasons.setdefault(verdict.reason, []).append(entry.claim.id)
        ordered = sorted(reasons.items(), key=lambda item: -len(item[1]))
        found.append({"paper": paper, "counts": counts, "total": len(mine), "reasons": ordered})
    return found
