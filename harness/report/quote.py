"""Caveats that a reader must know before quoting a number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dgbench.harness.claims.evaluate import PaperVerdicts
from dgbench.harness.report.run import RunData


def before_you_quote(
    paper: Any, verdicts: PaperVerdicts, run: RunData, rows: Sequence[Any]
) -> list[str]:
    """Caveats that a reader must know before quoting a number."""
    said = []
    if run.smoke:
        said.append("This is a smoke run on tiny data. None of its numbers is a measurement.")
    said += _analogues(verdicts, run)
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
    if run.noise is not None:
        said.append(
            f"Two runs of the same thing differ here by up to {100 * run.noise:.1f} % "
            "(noise floor). Differences inside it are called same."
        )
    elif any(r.time for r in rows):
        said.append("No noise floor was measured in this run: small differences mean nothing.")
    projected = verdicts.counts["p"]
    if projected:
        words = "verdict is a projection" if projected == 1 else "verdicts are projections"
        said.append(f"{projected} {words} by a model, not a measurement.")
    said += [f"Our own check failed: {w}" for w in verdicts.warnings]
    return said


def _analogues(verdicts: PaperVerdicts, run: RunData) -> list[str]:
    """Claims that rest on other hardware than they name, GPU claims on a CPU first."""
    pairs = zip(verdicts.claims, verdicts.verdicts, strict=True)
    weak = [claim for claim, verdict in pairs if verdict.evidence == "analogue"]
    on_cpu = sum(run.device == "cpu" and bool(claim.needs.get("gpus")) for claim in weak)
    rest = len(weak) - on_cpu
    said = []
    if on_cpu:
        words = "claim of the paper names a GPU and was" if on_cpu == 1 else (
            "claims of the paper name a GPU and were"
        )  # fmt: skip
        said.append(f"{on_cpu} {words} looked at on {run.machine_name}.")
    if rest:
        words = "claim was" if rest == 1 else "claims were"
        also = "more " if on_cpu else ""
        said.append(f"{rest} {also}{words} looked at by an analogue on {run.machine_name}.")
    return [" ".join([*said, "An analogue supports a direction, never a value."])] if said else []


def _system(name: str) -> Any:
    from dgbench.harness.plugins import Broken, find_system
    from dgbench.runtime.errors import DgbenchError

    try:
        found = find_system(name)
    except DgbenchError:
        return None
    return None if isinstance(found, Broken) else found
