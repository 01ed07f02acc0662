"""A site of runs whose figures have points and were not drawn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dgbench.harness.figures.draw import DrawnFigure
from dgbench.harness.report.merge import assemble
from dgbench.harness.report.sections import collect, put_figures, sketches_of
from dgbench.harness.report.site import SiteData
from dgbench.systems.base import find_paper


def site_of(runs: Iterable[Any], papers: Mapping[str, Any] | None = None) -> SiteData:
    """The model of some runs, of installed papers but for those that are given by name."""
    runs, shown = list(runs), []
    for run in runs:
        for name in run.papers:
            paper = (papers or {}).get(name) or find_paper(name)
            section = collect(paper, run)
            drawn: list[DrawnFigure | str] = [
                DrawnFigure(s.name, s.kind, s.title, "", "", s.points, empty=not s.points)
                for s in sketches_of(section)
            ]
            put_figures(section, drawn, run)
            shown.append((run, section))
    return assemble(shown, runs, merged=True, parts=("systems", "datasets", "machines"))
