"""Artifact appendices: every claim once, with the verdict and the numbers of the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from dgbench.harness.artifact import write_appendix
from dgbench.harness.claims import evaluate
from dgbench.harness.plugins import get_paper
from dgbench.harness.store import Store

KEPT = Path(__file__).parents[2] / "results" / "reference" / "amd-epyc-2-cores"
pytestmark = pytest.mark.skipif(not KEPT.is_dir(), reason="no checkout: references do not travel")


def test_an_appendix_has_the_numbers_of_its_run(tmp_path: Path) -> None:
    paper, store = get_paper("esdg"), Store.open(KEPT / "esdg")
    rows = [row for row in store.rows() if row.paper == "esdg"]
    text = write_appendix(paper, store, tmp_path).read_text().replace("\\", "")
    verdicts = evaluate(paper, store.rows())
    for claim, verdict in zip(verdicts.claims, verdicts.verdicts, strict=True):
        (line,) = (line for line in text.splitlines() if line.startswith(f"| {claim.id}: "))
        assert f"| {verdict.verdict} |" in line
    assert f"Time: {sum(row.seconds for row in rows) / 60:.1f} minutes of processes" in text
    peak = max(p for row in rows if isinstance(p := row.probes.get("peak_rss_bytes"), int))
    assert f"at most {peak / 2**30:.2f} GiB in one process" in text
