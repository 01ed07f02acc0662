"""The checks of PiPAD's claims; the rules stand in the experiments."""

from dgbench.lab.rules import checks_of
from dgbench.systems.pipad.experiments import EXPERIMENTS
from dgbench.systems.pipad.experiments.settings import FORMS

CHECKS = checks_of(FORMS, *(one for one in EXPERIMENTS if hasattr(one, "forms")))
"""Claim -> its check. Every id of the ledger stands here exactly once."""
