"""Ledgers of claims, and the verdict on each of them."""

from dgbench.harness.claims.evaluate import PaperVerdicts, evaluate
from dgbench.harness.claims.ledger import load_ledger
from dgbench.harness.claims.verdict import GLYPHS, Verdict, count, decide

__all__ = ["GLYPHS", "PaperVerdicts", "Verdict", "count", "decide", "evaluate", "load_ledger"]
