"""Training of a small twin for a run's noise floor, if no experiment has a control."""

from __future__ import annotations

from dgbench.lab.experiment import Measurement, RunContext
from dgbench.systems.base import Workload
from dgbench.systems.base.race import timed

WORKLOAD = Workload(
    dataset="flickr", model="tgcn_model", source="twin", scale=1 / 1024, snapshots=20
)
"""Small and the same everywhere: sparse products, dense layers and a recurrence, some ms a step."""
MIN_SECONDS = 0.2
"""Seconds of steps at least: shorter ones would say more of the clock than of the machine."""


def train_reference(context: RunContext) -> Measurement:
    """Train the reference on a small twin; `samples` are seconds of its steps."""
    context.budget_s = max(context.budget_s, MIN_SECONDS)
    return timed("reference", WORKLOAD, context)
