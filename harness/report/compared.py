"""`dgbench compare A B --out FOLDER`: figures, their values, and one page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dgbench.harness.compare import Comparison
from dgbench.harness.figures.compared import compare_context, draw_changes
from dgbench.harness.plugins import Broken, find_paper, paper_names
from dgbench.harness.report.comparisons import compare_page, make_pair
from dgbench.harness.report.merge import assemble
from dgbench.harness.report.pages import common, environment
from dgbench.harness.report.run import load_run
from dgbench.harness.states import State
from dgbench.harness.store.files import cannot_write, write_whole


def write_comparison(found: Comparison, states: Sequence[State], out: Path) -> Path:
    """Write `compare.html`, its figures, and `changes.csv` with every quantity into a folder.

    Args:
        found: of the two states. out: made where it is missing; other files in it stay.

    Returns:
        The path of the page.

    Raises:
        StoreError: the folder cannot be written.
    """
    try:
        (out / "figures" / "compare").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(out, error) from error
    titles = [_title(name) for name in dict.fromkeys(c.paper for c in found.changes)]
    title = ", ".join(titles) or "Nothing in common"
    draw_changes(found, "changes", f"{title}: {found.b} against {found.a}", out,
                 compare_context(found))  # fmt: skip
    runs = {path: load_run(path) for state in states for path in state.paths}
    sides = tuple(runs[state.paths[0]] if len(state.paths) == 1 else None for state in states)
    pair = make_pair(title, sides, found, "changes")  # type: ignore[arg-type]
    for path, text in pair.files.items():
        write_whole(out / path, text.encode("utf-8"))
    site = assemble([], list(runs.values()), merged=True)
    context = common(site, "", "compare") | {"nav": []}
    page = compare_page(context, environment(), pair, alone=True)
    write_whole(out / "compare.html", page.encode("utf-8"))
    return out / "compare.html"


def _title(name: str) -> str:
    paper = find_paper(name) if name in paper_names() else None
    return name if paper is None or isinstance(paper, Broken) else paper.title
