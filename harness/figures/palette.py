"""Colours and marks, bound by name: a system looks the same in every figure and on every page.

Nothing here imports matplotlib. The constants were searched for, not chosen by eye: hues of
systems differ by at least 12 (CIEDE2000) for normal vision and three kinds of colour blindness,
and by at least 6 in lightness; `tests/harness/test_figures.py` recomputes that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from dgbench.harness.claims.verdict import GLYPHS
from dgbench.harness.figures.colour import contrast, difference
from dgbench.lab.charts import subject_and_form

INK: Final = "#1F2328"
SECONDARY: Final = "#57606A"
GRID: Final = "#DDE1E6"
LINK: Final = "#0B5394"
NOISE: Final = "#C9CED6"
WHITE: Final = "#FFFFFF"
RED: Final = "#C8371B"


@dataclass(frozen=True, slots=True)
class Mark:
    """Style of a system: colour, marker (matplotlib's letter), filled or hollow, dashes."""

    colour: str
    marker: str
    filled: bool


SYSTEMS: Final[dict[str, Mark]] = {
    "pipad": Mark("#3A8EF0", "o", True),
    "esdg": Mark("#9E7604", "D", True),
    "gnnflow": Mark("#187858", "s", True),
    "dgc": Mark("#A01181", "v", True),
    "tgcn": Mark("#712B00", "^", True),
    "reference": Mark("#1A1A1A", "P", False),
}
BASELINES: Final = (
    Mark("#3F4752", "o", False),
    Mark("#6B7380", "s", False),
    Mark("#868E9B", "^", False),
)
"""First, second and third baseline of a figure. A fourth wears the third's grey with a cross."""
FOURTH: Final = Mark("#3F4752", "X", False)
GUESTS: Final = (
    Mark("#4454DF", "h", True),
    Mark("#989469", "p", True),
    Mark("#461052", "<", True),
)
"""Third parties' systems that name no colour, in order of appearance."""


WORDS: Final = (
    *GUESTS,
    *BASELINES,
    FOURTH,
    Mark("#4454DF", "*", True),
    Mark("#461052", ">", True),
    Mark("#989469", "d", True),
    Mark("#6B7380", "P", False),
    Mark("#868E9B", "v", False),
    Mark("#4454DF", "D", True),
    Mark("#461052", "^", True),
    Mark("#989469", "s", True),
    Mark("#6B7380", "X", False),
)
"""Series that are no systems, where there are more of them than greys or several of one subject."""

TITLED: Final = {"DGC": "dgc", "PGC": "dgc"}
"""First words of series that wear a system's colour: "DGC w/o SG" is a part of DGC."""

VARIANTS: Final = ("d", "^", "X")
"""Markers of the third series of a subject and the ones after it; the second one is hollow."""


@dataclass(frozen=True, slots=True)
class Glyph:
    """A verdict's look: fill, edge and the word people read."""

    fill: str
    edge: str
    word: str


VERDICTS: Final[dict[str, Glyph]] = {
    "R": Glyph("#0B5C7A", "#0B5C7A", GLYPHS["R"]),
    "d": Glyph("#0B5C7A", "#0B5C7A", GLYPHS["d"]),
    "X": Glyph("#FBE6DF", "#C8371B", GLYPHS["X"]),
    "S": Glyph("#9CCBE0", "#0B5C7A", GLYPHS["S"]),
    "s": Glyph("#9CCBE0", "#0B5C7A", GLYPHS["s"]),
    "O": Glyph("#FFFFFF", "#C8371B", GLYPHS["O"]),
    "u": Glyph("#FFFFFF", "#57606A", GLYPHS["u"]),
    "v": Glyph("#FFFFFF", "#57606A", GLYPHS["v"]),
    "=": Glyph("#FFFFFF", "#7A818C", GLYPHS["="]),
    "-": Glyph("#FFFFFF", "#7A818C", GLYPHS["-"]),
}
"""Filled dark: strong evidence for; pale: weak; red: against, a cross where strong; dots: open."""

PHASES: Final[dict[str, tuple[str, str]]] = {
    "compute": ("#4F5967", ""),
    "gnn": ("#5E7391", ""),
    "rnn": ("#A9C2AC", "xxxx"),
    "rest": ("#EDE8DF", "...."),
    "communicate": ("#B98BB0", "..."),
    "transfer": ("#E0A458", "////"),
    "sample": ("#9CC5D8", "\\\\\\\\"),
    "memory": ("#C9C0E0", "++"),
    "update": ("#D9DDE3", ""),
}
"""Fill and hatch of each phase, in drawing order. The hatch is part of the code."""

COMPARISON: Final = {"FAST": "#0B5C7A", "SLOW": "#C8371B", "SAME": "#57606A", "AMBG": "#57606A"}

STATUS_WORDS: Final = {
    "oom": "OOM",
    "time": "time",
    "crash": "crash",
    "check": "check",
    "void": "void",
    "no-gpu": "no GPU",
    "not-supported": "not supported",
    "not-built": "not built",
    "skipped": "skipped",
}


@dataclass(frozen=True, slots=True)
class Look:
    """A system as a figure needs it: title and mark."""

    name: str
    title: str
    mark: Mark
    strong: bool


def looks(names: Iterable[str], systems: dict[str, Any] | None = None) -> dict[str, Look]:
    """The look of each system of a figure, in the order given.

    Args:
        names: registry names, or any words (drawn as baselines).
        systems: name -> System where known; otherwise the registry is asked.
    """
    found: dict[str, Look] = {}
    baselines, guests = iter((*BASELINES, FOURTH)), iter(GUESTS)
    names = list(dict.fromkeys(names))
    parts = _parts(names)
    for name in names:
        system = systems.get(name) if systems is not None else _system(name)
        kind = getattr(system, "kind", "baseline")
        title = getattr(system, "title", name)
        if name in SYSTEMS:
            mark = SYSTEMS[name]
        elif name in parts:
            mark = parts[name]
        elif system is not None and getattr(system, "colour", None):
            mark = Mark(system.colour, system.marker or "h", kind == "paper")
        elif kind == "paper":
            mark = next(guests, GUESTS[-1])
        else:
            mark = next(baselines, FOURTH)
        found[name] = Look(name, title, mark, kind == "paper" or name in SYSTEMS)
    return found


def series_looks(names: Iterable[str], *, distinct: bool = False) -> dict[str, Look]:
    """The look of each series of a sweep: systems as everywhere, words by their subject.

    What stands before the first comma of a series is its subject: "TM-GCN, measured" and "TM-GCN,
    projected" share a colour, and the second one is hollow; a third one has another marker. A
    few words without commas stay grey, unless they must be `distinct`.
    """
    found = looks(names)
    parts = _parts(found)
    words = [n for n, look in found.items() if look.title == n and n not in (*SYSTEMS, *parts)]
    subjects = list(dict.fromkeys(subject_and_form(n)[0] for n in words))
    if not distinct and len(words) <= len(BASELINES) + 1 and len(subjects) == len(words):
        return found
    for place, subject in enumerate(subjects):
        mark = WORDS[place % len(WORDS)]
        mine = [n for n in words if subject_and_form(n)[0] == subject]
        for name, own in zip(mine, _variants(mark, len(mine)), strict=True):
            found[name] = Look(name, name, own, False)
    return found


def _variants(mark: Mark, count: int) -> list[Mark]:
    """Marks of one colour: itself, hollow if it is filled, then other markers."""
    made = [mark, Mark(mark.colour, mark.marker, False)] if mark.filled else [mark]
    while len(made) < count:
        marker = VARIANTS[(len(made) - 1 - mark.filled) % len(VARIANTS)]
        made.append(Mark(mark.colour, marker, False))
    return made[:count]


def _parts(names: Iterable[str]) -> dict[str, Mark]:
    """Marks of names that begin with a system's title, in its colour.

    The system's own filled mark goes to the title itself, and to the first part where neither the
    title nor the system is among the names.
    """
    names = list(names)
    found: dict[str, Mark] = {}
    mine: dict[str, list[str]] = {}
    for name in names:
        first = name.replace(",", " ").split(" ", 1)[0]
        if first in TITLED and name not in SYSTEMS:
            mine.setdefault(TITLED[first], []).append(name)
    for system, its in mine.items():
        its.sort(key=lambda name: name not in TITLED)
        taken = int(system in names)
        # Hollow means projected elsewhere, so that parts differ in their markers as well.
        variants = _variants(SYSTEMS[system], len(its) + taken + 1)
        marks = [variants[0], *variants[2:]][taken:]
        found |= dict(zip(its, marks, strict=True))
    return found


def close_colours(systems: Iterable[Any]) -> list[str]:
    """Sentences about systems whose own colour is too close to another one, or too pale."""
    notes = []
    taken = {name: mark.colour for name, mark in SYSTEMS.items()}
    for system in systems:
        colour = getattr(system, "colour", None)
        if not colour or system.name in SYSTEMS:
            continue
        if contrast(colour, WHITE) < 3:
            notes.append(f"{system.name}: colour {colour} is too pale on white (below 3:1)")
        for other, theirs in taken.items():
            if difference(colour, theirs) < 10:
                notes.append(f"{system.name}: colour {colour} is too close to {other}'s {theirs}")
        taken[system.name] = colour
    return notes


def _system(name: str) -> Any:
    try:
        from dgbench.harness.plugins import find_system

        return find_system(name)
    except Exception:
        return None
