"""A run on a borrowed device: a plan of units, cut anywhere, resumed by the next command."""

from dgbench.harness.device_session.session import DeviceSession
from dgbench.harness.device_session.units import CommandUnit, ExperimentUnit, read_commands

__all__ = ["CommandUnit", "DeviceSession", "ExperimentUnit", "read_commands"]
