"""The words of the pages, and values, rows and glyphs as words."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

from markupsafe import Markup

from dgbench.harness.claims.shown import digits, show
from dgbench.harness.figures.palette import VERDICTS
from dgbench.harness.plugins import find_paper
from dgbench.lab.arena import DIVISION
from dgbench.lab.compare import OWN_DATA
from dgbench.lab.paper import Paper
from dgbench.runtime.errors import UnknownKeyError

WORDS = (
    ("claim", "One quantitative statement of a paper, with its place and the printed number."),
    ("reproduced", "Strong evidence, within the claim's tolerance, which is printed beside it."),
    ("direction only", "Strong evidence of the right sign or order; the value lies outside."),
    ("contradicted", "Strong evidence of the other side; a broken bound is on the other side."),
    ("supported", "Weak evidence, within the tolerance."),
    ("supported (direction)", "Weak evidence of the right sign or order."),
    ("opposed", "Weak evidence of the other side."),
    ("undecided", "The interval, or the noise floor, holds both sides."),
    ("depends on the reading", "The paper leaves open how it is meant, and readings differ."),
    ("by definition", "A setting, an identity of arithmetic, a quotient of printed numbers, or a "
     "number that the input was fitted to: no measurement can decide it. In no total."),
    ("not run here", "Nothing was measured, with what it needs."),
    ("strong evidence", "Counted exactly, or obtained on the claim's class and number of devices, "
     "on the data that it names, over at least five processes or seeds."),
    ("weak evidence", "Obtained on another device, on other data or a twin, over fewer processes "
     "or seeds, by a model, or of another quantity. It may support and it may oppose."),
    ("counted", "Exact: bytes, edges, words, messages. The same on every machine, no interval."),
    ("printed", "A count as who published the dataset prints it, whose files are not here: weak."),
    ("timed", "Read from a clock. Decides nothing in a run without a noise floor."),
    ("learned", "What a model learned: its loss, accuracy or precision, with its seed."),
    ("probed", "Read from a probe of the machine, such as the use of a GPU."),
    ("projected", "Computed by a model of another machine: weak."),
    ("twin", "A synthetic stand-in for a dataset that cannot be had, made from its published "
     "counts. A claim about a number that the twin was fitted to is not run here: agreement "
     "would be circular."),
    ("same", "Inside the noise floor. Never called faster."),
    ("noise floor", "How far apart two runs of the same thing came out: of the experiment itself "
     "where it has such pairs, else of its paper's main race, else of the whole run."),
    ("interval", "2.1x [1.9, 2.3]: the ratio and its 95 % paired t interval on log ratios, from n "
     "interleaved pairs of processes; of turns inside one process, the order statistics that "
     "bound the median ratio."),
    ("deviation", "Largest relative difference of losses, outputs or gradients from the plain "
     "reference with the same seed. Above 1e-5 an exact technique is wrong, not fast."),
    ("exact, approximate", "An exact technique leaves the mathematics as it is; an approximate "
     "one changes it, and its quality stands beside its gain."),
    ("preset", "The size of a run: smoke, quick, full, the paper's own, or that of whole trainings "
     "(quality)."),
)  # fmt: skip

ABBREVIATIONS = dict(WORDS)


def markdown(value: Any) -> Any:
    """Text of a plugin, a card or a bundle as Markdown shows it: no HTML, link or line of its own.

    What is no text, or was made for Markdown (`Markup`), stays as it is.
    """
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    text = re.sub(r"\s*[\r\n]\s*", " ", value).replace("<", "&lt;").replace("](", "]\\(")
    return re.sub(r"^(\s*)(#|>|[-+*] |```|~~~)", r"\1\\\2", text)


def markdown_code(value: Any) -> Markup:
    """Text as code within a line of Markdown."""
    return Markup("`" + " ".join(str(value).replace("`", "'").split()) + "`")


def own_dataset(row: Any) -> str:
    """The option that names the user's dataset of a row, or ""."""
    if OWN_DATA not in row.params:
        return ""
    return f" --dataset {row.params.get('dataset') or row.params.get('graphs')}"


def row_command(row: Any) -> str:
    """The command that measures a row's experiment again; "" where its paper has none like it."""
    if row.paper == "-":
        return "dgbench doctor"
    with suppress(UnknownKeyError):
        paper = find_paper(row.paper)
        if isinstance(paper, Paper) and all(e.name != row.experiment for e in paper.experiments):
            return ""
    command = f"dgbench run {row.paper}/{row.experiment}{own_dataset(row)}"
    if DIVISION in row.params:
        division = row.params[DIVISION]
        command = f"dgbench arena {row.experiment}{own_dataset(row)} --division {division}"
    if row.preset != "quick":
        command += f" --preset {row.preset}"
    return f"{command} --device {row.asked}"


def paper_value(claim: Any) -> str:
    """Value that the paper prints."""
    return show(claim.value, claim.unit, printed=True) or "figure only"


def here_value(verdict: Any) -> str:
    """Value that was measured here, with its interval where it is a number."""
    text = show(verdict.measured, verdict.unit)
    if verdict.low is None or verdict.high is None or not isinstance(verdict.measured, int | float):
        return text
    places = len(digits(float(verdict.measured)).partition(".")[2])
    return f"{text} [{verdict.low:.{places}f}, {verdict.high:.{places}f}]"


_CLASSES = {"=": "ge", "-": "gn"}


def cell_class(point: dict[str, Any]) -> str:
    """CSS classes of a glyph."""
    names = ["g", _CLASSES.get(point["glyph"], f"g{point['glyph']}")]
    if point["twin"] and point["glyph"] != "-":
        names.append("gt")
    return " ".join(names)


def label(point: dict[str, Any]) -> str:
    """A glyph in words: "pipad-fig3-sm-util: opposed, twin"."""
    words = [VERDICTS[point["glyph"]].word]
    if point["twin"]:
        words.append("twin")
    return f"{point['claim']}: {', '.join(words)}"
