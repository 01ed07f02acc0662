"""Artifact appendices: every claim once, the numbers of the run, and LaTeX without accidents."""

from __future__ import annotations

from pathlib import Path

import pytest

from dgbench.harness.artifact import (
    appendix_of,
    escape_latex,
    markdown,
    write_appendix,
)
from dgbench.harness.claims import evaluate
from dgbench.harness.claims.plain import plain
from dgbench.harness.plugins import get_paper
from dgbench.harness.store import Store

KEPT = Path(__file__).parents[2] / "results" / "reference" / "amd-epyc-2-cores"
pytestmark = pytest.mark.skipif(not KEPT.is_dir(), reason="no checkout: references do not travel")


def test_an_appendix_has_the_numbers_of_its_run(tmp_path: Path) -> None:
    paper, store = get_paper("esdg"), Store.open(KEPT / "esdg")
    rows = store.rows()
    mine = [row for row in rows if row.paper == "esdg"]
    found = appendix_of(paper, store)
    verdicts = evaluate(paper, rows)
    facts = found.facts
    assert [(c["id"], c["verdict"], c["measured"]) for c in facts["claims"]] == [
        (claim.id, verdict.verdict, plain(verdict.measured))
        for claim, verdict in zip(verdicts.claims, verdicts.verdicts, strict=True)
    ]
    assert facts["seconds"] == pytest.approx(sum(row.seconds for row in mine))
    peaks = [row.probes.get("peak_rss_bytes") for row in mine]
    assert facts["peak_memory_bytes"] == max(p for p in peaks if isinstance(p, int))
    text = markdown(found)
    for claim in verdicts.claims:
        assert text.replace("\\", "").count(f"| {claim.id}: ") == 1
    first, second = write_appendix(found, tmp_path)
    assert first.read_text() == text
    assert second.read_text().isascii()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a_b & 5 % #1 $x {y}", r"a\_b \& 5 \% \#1 \$x \{y\}"),
        (r"\input{/etc/passwd}", r"\textbackslash{}input\{/etc/passwd\}"),
        ("2.1x [1.9, 2.3]", "2.1x {[}1.9, 2.3{]}"),
        ("1 ≤ 2 × 3 ± é\n\n☃", r"1 $\leq$ 2 $\times$ 3 $\pm$ e ?"),
    ],
)  # fmt: skip
def test_latex_is_escaped(text: str, wanted: str) -> None:
    assert escape_latex(text) == wanted
