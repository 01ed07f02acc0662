"""Artifact appendix of a paper: its claims with the verdicts to expect, and what they cost.

All numbers are those of one kept run. Markdown; `pandoc artifact-PAPER.md -o x.tex` makes LaTeX.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment

from dgbench.harness.claims import evaluate
from dgbench.harness.claims.kinds import by_kind, kind_of
from dgbench.harness.claims.shown import unit_rest
from dgbench.harness.report.words import here_value, paper_value, row_command
from dgbench.harness.store.files import cannot_write, write_whole
from dgbench.harness.store.store import Store
from dgbench.harness.terminal.verdicts import clock, marks
from dgbench.lab.probes import probe
from dgbench.runtime.errors import InvalidInputError

GIB: Final = 1 << 30
_MD: Final = str.maketrans({letter: f"\\{letter}" for letter in "\\`*_[]<>|#~"})


def write_appendix(paper: Any, store: Store, folder: Path) -> Path:
    """Write `artifact-PAPER.md` from a paper's ledger and a run; returns its path.

    Raises:
        InvalidInputError: the run has no row of the paper.
        StoreError: the file cannot be written.
    """
    text = appendix(paper, store)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(folder, error) from error
    path = folder / f"artifact-{paper.name}.md"
    write_whole(path, text.encode())
    return path


def appendix(paper: Any, store: Store) -> str:
    """The appendix as Markdown. Raises InvalidInputError where the run has no row of the paper."""
    every = store.rows()
    rows = [row for row in every if row.paper == paper.name]
    if not rows:
        has = sorted({row.paper for row in every} - {"-"})
        raise InvalidInputError(
            f"run '{store.run}' has no rows of {paper.name}, it has those of: "
            f"{', '.join(has) or 'no paper'}",
            hint=f"make one: dgbench reproduce {paper.name}",
        )
    verdicts = evaluate(paper, every)
    pairs = list(zip(verdicts.claims, verdicts.verdicts, strict=True))
    claims: dict[str, list[tuple[Any, Any, list[str]]]] = {}
    for claim, verdict in pairs:
        names = [e.name for e in paper.experiments if claim.id in e.claims]
        claims.setdefault(kind_of(claim), []).append((claim, verdict, names))
    env = Environment(trim_blocks=True, autoescape=False)
    env.filters |= {
        "md": lambda text: " ".join(str(text).split()).translate(_MD),
        "gib": lambda size: f"{size / GIB:.2f}",
        "clock": clock,
        "marks": marks,
        "rest": unit_rest,
        "paper_value": paper_value,
        "here_value": here_value,
    }
    template = files("dgbench.harness.report").joinpath("templates/artifact.md.j2")
    return env.from_string(template.read_text(encoding="utf-8")).render(
        paper=paper,
        run=store.run,
        date=str(store.info.get("started", ""))[:10],
        preset=store.info.get("preset"),
        device=store.info.get("device"),
        machine=_machine(store, rows),
        wall_seconds=_wall(store.info),
        kept_bytes=len(store.row_bytes()),
        datasets=sorted({name for row in rows for name in row.datasets}),
        experiments=[c for e in paper.experiments if (c := _cost(e, rows))["processes"]],
        kinds=by_kind(pairs),
        claims=claims,
        **_spent(rows),
    )


def _spent(rows: Sequence[Any]) -> dict[str, float]:
    return {
        "processes": sum(row.seconds > 0 for row in rows),
        "seconds": sum(row.seconds for row in rows),
        "peak_memory_bytes": max(_numbers(rows, "peak_rss_bytes"), default=0),
        "device_memory_bytes": max(_numbers(rows, "gpu_memory_peak_bytes"), default=0),
        "written_bytes": sum(_numbers(rows, "written_bytes")),
    }


def _cost(experiment: Any, rows: Sequence[Any]) -> dict[str, Any]:
    own = [row for row in rows if row.experiment == experiment.name]
    command = row_command(own[0]) if own else "part of the whole"
    return _spent(own) | {
        "name": experiment.name, "command": command, "claims": len(experiment.claims),
    }  # fmt: skip


def _machine(store: Store, rows: Sequence[Any]) -> list[str]:
    used = {row.provenance for row in rows}
    lines = (_machine_words(facts) for key, facts in store.provenance().items() if key in used)
    return list(dict.fromkeys(line for machine in lines for line in machine))


def _machine_words(facts: Mapping[str, Any]) -> Iterable[str]:
    machine = facts.get("machine") or {}
    cpu = machine.get("cpu") or {}
    yield (
        f"CPU: {cpu.get('model', 'unknown')}, {cpu.get('usable') or cpu.get('cores') or '?'} cores "
        f"({', '.join(cpu.get('flags') or ['no wide vectors known'])})"
    )
    if memory := machine.get("memory_limit_bytes") or machine.get("memory_bytes"):
        yield f"Memory: {memory / GIB:.1f} GiB"
    for gpu in machine.get("gpus") or []:
        memory = gpu.get("memory_bytes")
        size = f", {memory / GIB:.1f} GiB" if memory else ""
        yield f"GPU: {gpu.get('name', 'unknown')}{size}, driver {gpu.get('driver', 'unknown')}"
    if not machine.get("gpus"):
        yield "No GPU"
    packages = ", ".join(f"{k} {v}" for k, v in (facts.get("packages") or {}).items())
    yield (
        f"Software: {machine.get('system', 'unknown system')}, Python "
        f"{machine.get('python', 'unknown')}, dgbench {facts.get('dgbench', 'unknown')}, {packages}"
    )


def _numbers(rows: Iterable[Any], name: str) -> list[float]:
    found = (probe(name).read(row) for row in rows)
    return [v for v in found if isinstance(v, int | float) and not isinstance(v, bool)]


def _wall(info: Mapping[str, Any]) -> float:
    """Seconds from the begin of a run to its end; 0 where one of them is not known."""
    try:
        begin, end = (datetime.fromisoformat(str(info[k])) for k in ("started", "ended"))
        return max(0.0, (end - begin).total_seconds())
    except (KeyError, TypeError, ValueError):
        return 0.0
