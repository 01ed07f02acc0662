"""A check that passed, for rows and measurements that tests invent."""

from __future__ import annotations

from dgbench.lab.result_checks import ResultCheck

PASSED = ResultCheck(of="outputs", against="oracle", gap=1e-7, tolerance=1e-5, compared=9)
