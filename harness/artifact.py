"""Artifact appendix of a paper: its claims with the verdicts to expect, and what they cost.

All numbers are those of one kept run. The same document is written as Markdown and as LaTeX.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dgbench.harness.claims import evaluate
from dgbench.harness.claims.kinds import by_kind, kind_of
from dgbench.harness.claims.plain import as_plain
from dgbench.harness.claims.shown import show, unit_rest
from dgbench.harness.report.words import here_value, paper_value, row_command
from dgbench.harness.store.files import cannot_write, write_whole
from dgbench.harness.store.store import Store
from dgbench.harness.terminal.verdicts import clock, marks
from dgbench.lab.probes import probe
from dgbench.runtime.errors import InvalidInputError

GIB: Final = 1 << 30
_COSTS: Final = (
    "experiment", "command", "processes", "minutes", "peak memory (GiB)", "claims",
)  # fmt: skip
_CLAIMS: Final = ("claim", "where", "printed", "expected", "verdict", "evidence", "experiments")


@dataclass(frozen=True, slots=True)
class AppendixTable:
    """A table of words; `wide` columns share the width of the page."""

    head: Sequence[str]
    lines: Sequence[Sequence[str]]
    wide: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class AppendixSection:
    """A heading with sentences, then a table and commands, where there are some."""

    title: str
    sentences: Sequence[str] = ()
    table: AppendixTable | None = None
    commands: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Appendix:
    """The artifact appendix of one paper.

    Attributes:
        paper, title: name of the paper and heading. sections: in order.
        facts: the numbers behind the sections, as JSON values: `seconds`, `wall_seconds`,
            `peak_memory_bytes`, `device_memory_bytes`, `written_bytes`, `kept_bytes`, `processes`,
            `experiments`, `claims`.
    """

    paper: str
    title: str
    sections: Sequence[AppendixSection]
    facts: Mapping[str, Any]


def appendix_of(paper: Any, store: Store) -> Appendix:
    """The appendix of a paper from its ledger and a run.

    Raises:
        InvalidInputError: the run has no row of the paper.
    """
    every = store.rows()
    mine = [row for row in every if row.paper == paper.name]
    if not mine:
        has = sorted({row.paper for row in every} - {"-"})
        raise InvalidInputError(
            f"run '{store.run}' has no rows of {paper.name}, it has those of: "
            f"{', '.join(has) or 'no paper'}",
            hint=f"make one: dgbench reproduce {paper.name}",
        )
    found = evaluate(paper, every)
    pairs = list(zip(found.claims, found.verdicts, strict=True))
    experiments = [cost for e in paper.experiments if (cost := _cost(e, mine))["processes"]]
    facts = _facts(store, mine, pairs, experiments)
    of: dict[str, list[str]] = {}
    for experiment in paper.experiments:
        for claim in experiment.claims:
            of.setdefault(claim, []).append(experiment.name)
    sections = [
        _about(paper, store, facts),
        AppendixSection("Hardware and software", _machine(store, mine)),
        _needs(store, mine, facts),
        _commands(paper, store, experiments),
        AppendixSection(
            "What an evaluation should find",
            [counts.words[0].upper() + counts.words[1:] + "." for counts in by_kind(pairs)],
        ),
    ]
    for counts in by_kind(pairs):
        lines = [_claim(c, v, of.get(c.id, ())) for c, v in pairs if kind_of(c) == counts.kind]
        sections.append(
            AppendixSection(
                f"Claims: {counts.kind}", table=AppendixTable(_CLAIMS, lines, wide=_CLAIMS)
            )
        )
    title = f"Artifact appendix: {paper.title} ({paper.venue})"
    return Appendix(paper.name, title, sections, facts)


def write_appendix(found: Appendix, folder: Path) -> list[Path]:
    """Write `artifact-PAPER.md` and `artifact-PAPER.tex`, each whole. Raises StoreError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(folder, error) from error
    paths = []
    for ending, written in ((".md", markdown(found)), (".tex", latex(found))):
        paths.append(folder / f"artifact-{found.paper}{ending}")
        write_whole(paths[-1], written.encode())
    return paths


def _cost(experiment: Any, rows: Sequence[Any]) -> dict[str, Any]:
    mine = [row for row in rows if row.experiment == experiment.name]
    return {
        "experiment": experiment.name,
        "command": row_command(mine[0]) if mine else "",
        "processes": sum(row.seconds > 0 for row in mine),
        "seconds": sum(row.seconds for row in mine),
        "peak_memory_bytes": _peak(mine, "peak_rss_bytes"),
        "claims": len(experiment.claims),
    }


def _facts(
    store: Store, rows: Sequence[Any], pairs: Sequence[Any], experiments: Sequence[Any]
) -> dict[str, Any]:
    return {
        "run": store.run,
        "processes": sum(row.seconds > 0 for row in rows),
        "seconds": sum(row.seconds for row in rows),
        "wall_seconds": _wall(store.info),
        "peak_memory_bytes": _peak(rows, "peak_rss_bytes"),
        "device_memory_bytes": _peak(rows, "gpu_memory_peak_bytes"),
        "written_bytes": sum(_numbers(rows, "written_bytes")),
        "kept_bytes": len(store.row_bytes()),
        "experiments": list(experiments),
        "claims": [as_plain(claim, verdict) | {"kind": kind_of(claim)} for claim, verdict in pairs],
    }


def _about(paper: Any, store: Store, facts: Mapping[str, Any]) -> AppendixSection:
    info = store.info
    return AppendixSection(
        "What this is",
        [
            paper.about,
            f"All numbers below are of run {store.run} ({str(info.get('started', ''))[:10]}, "
            f"preset {info.get('preset') or 'not kept'}, device {info.get('device') or 'not kept'})"
            f", {facts['processes']} processes of this paper.",
            "A verdict says how a claim of the paper stands on the machine below; another machine "
            "may decide other claims.",
        ],
    )


def _machine(store: Store, rows: Sequence[Any]) -> list[str]:
    used = {row.provenance for row in rows}
    found: dict[str, None] = {}
    for key, facts in store.provenance().items():
        if key in used:
            found.update(dict.fromkeys(_machine_words(facts)))
    return list(found) or ["The run does not say on which machine it was made."]


def _machine_words(facts: Mapping[str, Any]) -> Iterable[str]:
    machine = facts.get("machine") or {}
    cpu = machine.get("cpu") or {}
    yield (
        f"CPU: {cpu.get('model', 'unknown')}, {cpu.get('usable') or cpu.get('cores') or '?'} cores "
        f"({', '.join(cpu.get('flags') or ['no wide vectors known'])})."
    )
    if memory := machine.get("memory_limit_bytes") or machine.get("memory_bytes"):
        yield f"Memory: {memory / GIB:.1f} GiB."
    for gpu in machine.get("gpus") or []:
        memory = gpu.get("memory_bytes")
        size = f", {memory / GIB:.1f} GiB" if memory else ""
        yield f"GPU: {gpu.get('name', 'unknown')}{size}, driver {gpu.get('driver', 'unknown')}."
    if not machine.get("gpus"):
        yield "No GPU."
    yield (
        f"Software: {machine.get('system', 'unknown system')}, Python "
        f"{machine.get('python', 'unknown')}, dgbench {facts.get('dgbench', 'unknown')}, "
        + ", ".join(f"{k} {v}" for k, v in (facts.get("packages") or {}).items())
        + "."
    )


def _needs(store: Store, rows: Sequence[Any], facts: Mapping[str, Any]) -> AppendixSection:
    data = sorted({name for row in rows for name in row.datasets})
    wall = facts["wall_seconds"]
    sentences = [
        f"Time: {facts['seconds'] / 60:.1f} minutes of processes"
        + (f"; the whole run took {clock(wall)} from its first process to its last." if wall
           else "; the run does not say when it ended."),
        f"Memory: at most {facts['peak_memory_bytes'] / GIB:.2f} GiB in one process."
        if facts["peak_memory_bytes"] else "Memory: it was not measured.",
        f"Disk: processes wrote {facts['written_bytes'] / GIB:.2f} GiB (prepared data, scratch), "
        f"and the run keeps {facts['kept_bytes'] / GIB:.3f} GiB of rows.",
    ]  # fmt: skip
    if facts["device_memory_bytes"]:
        sentences.append(
            f"Device memory: at most {facts['device_memory_bytes'] / GIB:.2f} GiB in one process."
        )
    if data:
        sentences.append(f"Data: {', '.join(data)}; see dgbench data list for where each is from.")
    return AppendixSection("What it needs", sentences)


def _commands(
    paper: Any, store: Store, experiments: Sequence[Mapping[str, Any]]
) -> AppendixSection:
    whole = [f"dgbench reproduce {paper.name}"]
    if preset := store.info.get("preset"):
        whole[0] += f" --preset {preset}"
    lines = [
        (
            one["experiment"],
            one["command"] or "part of the whole",
            str(one["processes"]),
            f"{one['seconds'] / 60:.1f}",
            f"{one['peak_memory_bytes'] / GIB:.2f}" if one["peak_memory_bytes"] else "",
            str(one["claims"]),
        )
        for one in experiments
    ]
    return AppendixSection(
        "Commands",
        ["All of it, with the verdicts at the end, and then each experiment by itself."],
        AppendixTable(_COSTS, lines, wide=("command",)),
        ["dgbench doctor", *whole, "dgbench report last"],
    )


def _claim(claim: Any, verdict: Any, experiments: Sequence[str]) -> tuple[str, ...]:
    rest = unit_rest(claim.unit)
    printed = paper_value(claim) + (f" ({rest})" if rest else "")
    expected = here_value(verdict) if verdict.measured is not None else ""
    evidence = marks(verdict)
    if verdict.reason:
        evidence += f": {verdict.reason}" if evidence else verdict.reason
    return (
        f"{claim.id}: {claim.statement}",
        claim.where,
        printed,
        expected or show(verdict.measured, verdict.unit) or "nothing measured",
        verdict.verdict,
        evidence,
        ", ".join(experiments),
    )


def _numbers(rows: Iterable[Any], name: str) -> list[float]:
    found = (probe(name).read(row) for row in rows)
    return [v for v in found if isinstance(v, int | float) and not isinstance(v, bool)]


def _peak(rows: Iterable[Any], name: str) -> float:
    return max(_numbers(rows, name), default=0)


def _wall(info: Mapping[str, Any]) -> float:
    """Seconds from the begin of a run to its end; 0 where one of them is not known."""
    from datetime import datetime

    try:
        begin, end = (datetime.fromisoformat(str(info[k])) for k in ("started", "ended"))
        return max(0.0, (end - begin).total_seconds())
    except (KeyError, TypeError, ValueError):
        return 0.0


# --- Markdown -------------------------------------------------------------------------------


_MD: Final = str.maketrans({letter: f"\\{letter}" for letter in "\\`*_[]<>|#~"})


def markdown(found: Appendix) -> str:
    """The appendix as Markdown."""
    parts = [f"# {_md(found.title)}"]
    for section in found.sections:
        parts.append(f"## {_md(section.title)}")
        parts += [_md(sentence) for sentence in section.sentences]
        if section.commands:
            parts.append("\n".join(["```sh", *section.commands, "```"]))
        if section.table is not None:
            parts.append(_md_table(section.table))
    return "\n\n".join(parts) + "\n"


def _md(text: str) -> str:
    return " ".join(str(text).split()).translate(_MD)


def _md_table(table: AppendixTable) -> str:
    lines = [table.head, ["---"] * len(table.head), *table.lines]
    cells = [[c if c == "---" else _md(c) for c in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


# --- LaTeX ----------------------------------------------------------------------------------

_TEX: Final = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#",
    "%": r"\%", "_": r"\_", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}",
    "'": "'", "`": r"\textasciigrave{}", "-": "{-}", "[": "{[}", "]": "{]}",
    "≤": r"$\leq$", "≥": r"$\geq$", "×": r"$\times$", "−": r"$-$", "±": r"$\pm$", "·": r"$\cdot$",
    "→": r"$\rightarrow$", "≈": r"$\approx$", "∞": r"$\infty$", "√": r"$\surd$", "∑": r"$\sum$",
    "Σ": r"$\Sigma$", "Δ": r"$\Delta$", "α": r"$\alpha$", "β": r"$\beta$", "γ": r"$\gamma$",
    "δ": r"$\delta$", "ε": r"$\epsilon$", "λ": r"$\lambda$", "μ": r"$\mu$", "µ": r"$\mu$",
    "σ": r"$\sigma$", "τ": r"$\tau$", "φ": r"$\phi$", "θ": r"$\theta$", "°": r"$^\circ$",
    "–": "--", "—": "---", "…": "...", "“": "``", "”": "''", "‘": "`", "’": "'", "\u00a0": "~",
}  # fmt: skip
"""Characters that mean something to LaTeX, or that it may lack a letter for."""


def escape_latex(text: str) -> str:
    """A text as LaTeX prints it letter by letter, in ASCII; a letter without a form becomes `?`."""
    return "".join(_tex_letter(letter) for letter in " ".join(str(text).split()))


def _tex_letter(letter: str) -> str:
    if letter in _TEX:
        return _TEX[letter]
    if letter.isascii():
        return letter if letter.isprintable() else "?"
    plain = unicodedata.normalize("NFKD", letter).encode("ascii", "ignore").decode()
    return "".join(_TEX.get(one, one) for one in plain) or "?"


def latex(found: Appendix) -> str:
    """The appendix as a LaTeX document of its own; its body can be taken over into a paper."""
    parts = [
        r"\documentclass{article}",
        r"\usepackage[T1]{fontenc}",
        r"\usepackage[margin=2cm]{geometry}",
        r"\usepackage{array,booktabs,longtable}",
        r"\begin{document}",
        rf"\section*{{{escape_latex(found.title)}}}",
    ]
    for section in found.sections:
        parts.append(rf"\subsection*{{{escape_latex(section.title)}}}")
        parts += [f"{escape_latex(sentence)}\n" for sentence in section.sentences]
        if section.commands:
            code = (rf"\texttt{{{escape_latex(line)}}}" for line in section.commands)
            parts.append("\n\n".join(code) + "\n")
        if section.table is not None:
            parts.append(_tex_table(section.table))
    return "\n".join([*parts, r"\end{document}"]) + "\n"


def _tex_table(table: AppendixTable) -> str:
    share = 0.84 / max(1, len(table.wide))
    wide = rf">{{\raggedright\arraybackslash}}p{{{share:.3f}\linewidth}}"
    columns = "".join(wide if name in table.wide else "l" for name in table.head)
    return "\n".join(
        [
            rf"\begin{{footnotesize}}\begin{{longtable}}{{{columns}}}",
            r"\toprule",
            _tex_line(table.head),
            r"\midrule\endhead",
            *map(_tex_line, table.lines),
            r"\bottomrule",
            r"\end{longtable}\end{footnotesize}",
        ]
    )


def _tex_line(cells: Sequence[str]) -> str:
    return " & ".join(map(escape_latex, cells)) + r" \\"
