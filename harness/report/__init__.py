"""The pages of a run: static, self-contained, readable without having read the papers."""

from dgbench.harness.report.build import build_report

__all__ = ["build_report"]
