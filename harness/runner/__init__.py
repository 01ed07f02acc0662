"""Runs a plan: one process a cell from a fork server, every failure a row."""

from dgbench.harness.runner.client import ForkServer
from dgbench.harness.runner.listener import Listener
from dgbench.harness.runner.run import run_plan
from dgbench.harness.runner.summary import RunSummary

__all__ = ["ForkServer", "Listener", "RunSummary", "run_plan"]
