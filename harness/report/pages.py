"""Filling the templates. All HTML is escaped by jinja2; nothing is fetched when a page is read."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from dgbench.harness.claims.verdict import GLYPHS, digits, show, unit_rest
from dgbench.harness.figures.claim_board import ranked
from dgbench.harness.figures.palette import VERDICTS
from dgbench.harness.figures.style import seconds_text
from dgbench.harness.report.run import STATUS_MEANING, RunData
from dgbench.harness.report.sections import PaperSection, board_points, without_result
from dgbench.harness.terminal.progress import describe

WORDS = (
    ("claim", "One quantitative statement of a paper, with its place and the printed number."),
    ("reproduced", "Right sign and within the claim's tolerance, which is printed beside it."),
    ("direction only", "Right sign or order; the value lies outside, or the evidence is too weak."),
    ("contradicted", "The whole interval lies on the other side, on measured or counted evidence."),
    ("projected", "Modelled, not measured: it would hold if the model is right. Direction only."),
    ("not run here", "No verdict, with what it needs. An exclamation mark: weak evidence points "
     "the other way."),
    ("measured", "Timed or read on the kind of device that the claim names."),
    ("analogue", "Measured on other hardware, a GPU claim on a CPU for one. Shows a direction."),
    ("counted", "Exact: bytes, edges, words, messages. The same on every machine, no interval."),
    ("twin", "A synthetic stand-in for a dataset that cannot be had, made from its published "
     "counts. A claim about a number that the twin was fitted to is not run here: agreement "
     "would be circular."),
    ("same", "Inside the noise floor. Never called faster."),
    ("noise floor", "How far apart two runs of the same thing come out on this machine."),
    ("interval", "2.1x [1.9, 2.3]: the ratio and its 95 % paired t interval on log ratios, from n "
     "interleaved pairs of processes; of turns inside one process, the order statistics that "
     "bound the median ratio."),
    ("deviation", "Largest relative difference of losses, outputs or gradients from the plain "
     "reference with the same seed. Above 1e-5 an exact technique is wrong, not fast."),
    ("exact, approximate", "An exact technique leaves the mathematics as it is; an approximate "
     "one changes it, and its quality stands beside its gain."),
    ("preset", "The size of a run: smoke, quick, full, or the paper's own."),
)  # fmt: skip

ABBREVIATIONS = dict(WORDS)


def environment() -> Environment:
    """Templates with their filters; an undefined name is an error, not a blank."""
    env = Environment(
        loader=PackageLoader("dgbench.harness.report", "templates"),
        autoescape=select_autoescape(["html.j2", "html"], default_for_string=False, default=False),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    folder = files("dgbench.harness.report").joinpath("templates")
    env.globals |= {
        "style": Markup(folder.joinpath("style.css").read_text(encoding="utf-8")),
        "script": Markup(folder.joinpath("script.js").read_text(encoding="utf-8")),
        "glyphs": GLYPHS,
        "verdicts": VERDICTS,
        "words": WORDS,
        "meaning": ABBREVIATIONS,
        "row_command": row_command,
    }
    env.filters |= {
        "paper_value": paper_value,
        "here_value": here_value,
        "unit_rest": lambda claim: unit_rest(claim.unit),
        "seconds": seconds_text,
        "digits": digits,
        "describe": describe,
        "status": lambda word: STATUS_MEANING.get(word, word),
        "cell_class": cell_class,
        "label": label,
        "cell": lambda text: " ".join(str(text).replace("|", "\\|").split()),
    }
    return env


def overview(
    env: Environment, run: RunData, shown: Sequence[PaperSection], template: str = ""
) -> str:
    """The first page of a run, as HTML or (another template) Markdown."""
    counts = {g: sum(s.verdicts.counts[g] for s in shown) for g in GLYPHS}
    total = sum(counts.values())
    where = run.machine_name + (" without a GPU" if run.device == "cpu" else "")
    so_far = ", so far" if run.partial else ""
    claims = [(s, c, v) for s in shown for c, v in s.claims]
    return env.get_template(template or "overview.html.j2").render(
        **_common(run, shown, "", "report"),
        headline=f"{counts['R']} of {total} claims reproduced on {where}{so_far}",
        counts=counts,
        total=total,
        claims=claims,
        analogues=sum(v.evidence == "analogue" and v.glyph == "d" for _, _, v in claims),
        other_way=sum(v.other_way for _, _, v in claims),
        on_twins=sum(v.data == "twin" for _, _, v in claims),
        boards={s.name: ranked(board_points(s.verdicts)) for s in shown},
        failed=without_result(run.rows),
    )


def paper_page(
    env: Environment, run: RunData, shown: Sequence[PaperSection], section: PaperSection
) -> str:
    """The page of one paper."""
    return env.get_template("paper.html.j2").render(
        **_common(run, shown, "../", section.name),
        section=section,
        counts=section.verdicts.counts,
        total=len(section.verdicts.verdicts),
        claims=[(section, c, v) for c, v in section.claims],
        boards={section.name: ranked(board_points(section.verdicts))},
        missing=[(c, v) for c, v in section.claims if v.verdict == "not run here"],
    )


def rows_page(env: Environment, run: RunData, shown: Sequence[PaperSection]) -> str:
    """Every row of the run, failures first."""
    rows = sorted(run.everything, key=lambda r: (r.ok, r.paper, r.experiment))
    return env.get_template("runs.html.j2").render(
        **_common(run, shown, "", "runs"),
        rows=rows,
        bad=sum(not r.ok for r in rows),
    )


def reading(env: Environment, run: RunData, shown: Sequence[PaperSection]) -> str:
    """How to read glyphs, intervals and words."""
    return env.get_template("how-to-read.html.j2").render(**_common(run, shown, "", "how"))


def _common(run: RunData, shown: Sequence[PaperSection], root: str, page: str) -> dict[str, Any]:
    return {
        "run": run,
        "papers": shown,
        "root": root,
        "page": page,
        "tally": run.tally(),
        "twins": run.twins,
    }


def row_command(row: Any) -> str:
    """The command that measures a row's experiment again."""
    if row.paper == "-":
        return "dgbench doctor"
    command = f"dgbench run {row.paper}/{row.experiment}"
    if row.preset != "quick":
        command += f" --preset {row.preset}"
    return f"{command} --device {row.device}"


def paper_value(claim: Any) -> str:
    """What the paper prints."""
    return show(claim.value, claim.unit, printed=True) or "figure only"


def here_value(verdict: Any) -> str:
    """What was found here, with its interval where it is a number."""
    text = show(verdict.measured, verdict.unit)
    if verdict.low is None or verdict.high is None or not isinstance(verdict.measured, int | float):
        return text
    places = len(digits(float(verdict.measured)).partition(".")[2])
    return f"{text} [{verdict.low:.{places}f}, {verdict.high:.{places}f}]"


def cell_class(point: dict[str, Any]) -> str:
    """CSS classes of a glyph."""
    names = ["g", {"R": "gR", "d": "gd", "X": "gX", "p": "gp", "-": "gn"}[point["glyph"]]]
    if point["analogue"] and point["glyph"] == "d":
        names.append("ga")
    if point["other_way"]:
        names.append("go")
    if point["twin"] and point["glyph"] != "-":
        names.append("gt")
    return " ".join(names)


def label(point: dict[str, Any]) -> str:
    """A glyph in words: "pipad-fig3-sm-util: direction only, analogue, twin"."""
    words = [VERDICTS[point["glyph"]].word]
    if point["analogue"]:
        words.append("analogue")
    if point["twin"]:
        words.append("twin")
    if point["other_way"]:
        words.append("points the other way")
    return f"{point['claim']}: {', '.join(words)}"
