"""Pages of one run or of several: static, self-contained, readable without having read a paper."""

from dgbench.harness.report.build import build_report, build_site

__all__ = ["build_report", "build_site"]
