"""Caveats that a reader must know before quoting a number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from dgbench.harness.claims.evaluate import PaperVerdicts
from dgbench.harness.quality import race_quality
from dgbench.harness.report.run import RunData


def before_you_quote(
    paper: Any,
    verdicts: PaperVerdicts,
    run: RunData,
    rows: Sequence[Any],
    scored: Sequence[Any] | None = None,
) -> list[str]:
    """Caveats that a reader must know before quoting a number.

    Args:
        scored: rows among which scores of models are, `rows` by default.
    """
    said = []
    if run.smoke:
        said.append("This is a smoke run on tiny data. None of its numbers is a measurement.")
    said += _weak(verdicts)
    twins = sorted({name for r in rows if r.ok and r.data.get("twin") for name in r.datasets})
    if twins:
        said.append(
            f"{', '.join(twins)}: synthetic twins stand in for these datasets. A twin copies "
            "published counts and shapes; it is not the dataset."
        )
    names = dict.fromkeys(str(r.params["system"]) for r in rows if r.params.get("system"))
    baselines = []
    for name in names:
        system = _system(name)
        if system is not None and system.kind == "baseline":
            baselines.append(f"{system.title} ({system.provenance or 'origin not stated'})")
    if baselines:
        said.append(f"Baselines: {'; '.join(baselines)}.")
    if floors := run.floors_text(paper):
        said.append(
            f"Two runs of the same thing differed by up to {floors}"
            f"{', depending on the experiment' if ' to ' in floors else ''} (noise floor). "
            "Differences inside it are called same."
        )
    elif any(r.time for r in rows):
        said.append("No noise floor was measured in this run: small differences mean nothing.")
    said += _scores(paper, rows, rows if scored is None else scored)
    projected = sum(v.source == "projected" and bool(v.strength) for v in verdicts.verdicts)
    if projected:
        words = "verdict is a projection" if projected == 1 else "verdicts are projections"
        said.append(f"{projected} {words} by a model, not a measurement.")
    said += [f"Our own check failed: {w}" for w in verdicts.warnings]
    return said


def _scores(paper: Any, rows: Sequence[Any], scored: Sequence[Any]) -> list[str]:
    """Sentences on raced workloads whose models were scored elsewhere, and never."""
    judged = race_quality(paper, [row for row in rows if row.ok], scored)
    unscored = sum(one is None for one in judged.values())
    said = []
    if unscored < len(judged) and len(scored) > len(rows):
        said.append("Scores beside speeds are of whole trainings in other runs, on the same data.")
    if not unscored:
        return said
    few = f"on {unscored} of {len(judged)} raced workloads"
    where = "on any raced workload" if unscored == len(judged) else few
    said.append(
        "Whether the trained models predict better than a predictor that trains nothing was not "
        f"measured here {where}."
    )
    return said


def _weak(verdicts: PaperVerdicts) -> list[str]:
    """A sentence on how many verdicts rest on weak evidence, and on what they lack."""
    weak = [verdict for verdict in verdicts.verdicts if verdict.strength == "weak"]
    if not weak:
        return []
    lacks = Counter(lack for verdict in weak for lack in verdict.lacks)
    told = ", ".join(f"{lack} ({n})" for lack, n in lacks.most_common(4))
    return [
        f"{len(weak)} verdicts rest on weak evidence, which supports or opposes and decides "
        f"nothing: {told}."
    ]


def _system(name: str) -> Any:
    from dgbench.harness.plugins import Broken, find_system
    from dgbench.runtime.errors import DgbenchError

    try:
        found = find_system(name)
    except DgbenchError:
        return None
    return None if isinstance(found, Broken) else found
