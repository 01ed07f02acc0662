"""Which check answers which claim. Every id of the ledger stands here exactly once."""

from dgbench.systems.base import Check

CHECKS: dict[str, Check] = {}
