"""The checks of ESDG's claims; the rules stand in the experiments."""

from __future__ import annotations

from collections.abc import Sequence
from functools import wraps
from typing import Any, Final

from dgbench.lab.outcomes import checks_of
from dgbench.lab.paper import Check, Claim, Finding
from dgbench.systems.esdg.experiments import EXPERIMENTS
from dgbench.systems.esdg.experiments.settings import STAND_INS


def on_stand_ins(check: Check) -> Check:
    """The check with rows of the paper's graphs and of what its generators make, where its claim
    names some; a formula or a mechanism takes rows of any graph."""

    @wraps(check)
    def checked(claim: Claim, rows: Sequence[Any]) -> Finding:
        return check(claim, STAND_INS.of(rows) if claim.workload.get("datasets") else rows)

    return checked


CHECKS: Final = {name: on_stand_ins(check) for name, check in checks_of(*EXPERIMENTS).items()}
"""Claim -> its check. Every id of the ledger stands here exactly once."""
