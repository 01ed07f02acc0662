"""Labels of runs that others made, from the weakest to the strongest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

SELF_REPORTED: Final = "self-reported"
COUNTERS_VERIFIED: Final = "counters verified"
RERUN: Final = "re-run"
LABELS: Final = (SELF_REPORTED, COUNTERS_VERIFIED, RERUN)
"""*self-reported*: the files are whole. *counters verified*: exact counters equal those of runs
that are here. *re-run*: a cell drawn by the bundle's digest ran here, its result was right and its
exact counters are the same."""
LABEL: Final = "label"
"""The entry of run.json. Only the machine that verifies a run writes it; a bundle may have none."""


def label_of(info: Mapping[str, Any]) -> str:
    """The label of a run by its run.json, "" for a run of one's own."""
    found = info.get(LABEL, "")
    return found if found in LABELS else ""
