"""Data of a run for its report, read from its folder."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from dgbench.harness.bundle.labels import label_of
from dgbench.harness.figures.style import Context
from dgbench.harness.plan.rounds import RoundsRecord
from dgbench.harness.report.limits import limits_in
from dgbench.harness.store import Row, Store
from dgbench.harness.store.standing import cell_states
from dgbench.harness.terminal.verdicts import clock, dataset_kinds
from dgbench.lab.compare import without_control
from dgbench.lab.noise import NoisePairs

ROWS_A_PAGE: Final = 150
"""Rows that one page shows; pages of more rows would be slow to open and to sort."""

TALLIED = ("ok", "missing", "void", "failed")
FAILED = ("oom", "time", "crash", "check", "void")
STATUS_MEANING = {
    "oom": "out of memory",
    "time": "time limit",
    "crash": "crashed",
    "check": "wrong result",
    "void": "void",
    "no-gpu": "no GPU",
    "not-supported": "not supported",
    "not-built": "not built",
    "skipped": "skipped",
    "ok": "ok",
}


@dataclass(frozen=True, slots=True, repr=False)  # of its rows, hundreds of megabytes
class RunData:
    """A run as pages show it.

    Attributes:
        store: its folder. rows: the last attempt of each process, without the machine's own rows
            and without A/A controls. everything: all of them.
        planned: cells of the plan; started: cells with a row; left: cells without.
        trained: experiments of whole trainings that were kept beside what is timed; left_trained:
            cells without a row that are theirs.
        noise_pairs: its A/A pairs, from which every race has its noise floor (`floor`).
        torn: lines that were set aside. limits: what the machine can do, measured in this run.
        slug: names the run on a site: its id, or machine and paper of a reference run.
        machine_slug: names its machine. kept: whether its folder is a reference that was kept.
        pages: the rows as pages show them, failures first, in pieces of `ROWS_A_PAGE`.
    """

    store: Store
    rows: list[Row]
    everything: list[Row]
    planned: int
    left: int
    torn: int
    noise_pairs: NoisePairs
    machine: dict[str, Any]
    limits: dict[str, float]
    info: dict[str, Any]
    papers: list[str] = field(default_factory=list)
    slug: str = ""
    machine_slug: str = ""
    kept: bool = False
    pages: list[list[Row]] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)
    trained: frozenset[str] = frozenset()
    left_trained: int = 0
    commit: str = ""

    @property
    def row_page(self) -> str:
        """The (first) page of its rows, relative to the front page."""
        return self.row_pages[0]

    @property
    def row_pages(self) -> list[str]:
        """All pages of its rows, relative to the front page."""
        more = [f"runs/{self.slug}-rows-{n}.html" for n in range(2, len(self.pages) + 1)]
        return [f"runs/{self.slug}.html", *more]

    def row_href(self, row_id: str) -> str:
        """Where a row stands, relative to the front page; the first page for an unknown row."""
        if row_id not in self.places:
            return self.row_page
        return f"{self.row_pages[self.places[row_id]]}#row-{row_id}"

    @property
    def machine_rows(self) -> list[Row]:
        """The machine's limits as rows; figures get them beside an experiment's own."""
        return [r for r in self.everything if is_limits(r) and r.ok]

    @property
    def measured(self) -> str:
        """Day and commit of its rows: `2026-11-29, commit 0123456789ab`."""
        day = str(self.info.get("started", ""))[:10] or "day not kept"
        return f"{day}, commit {self.commit}" if self.commit else f"{day}, commit not kept"

    @property
    def partial(self) -> bool:
        """True if cells of the plan are missing."""
        return self.left > 0 or self.info.get("state") not in ("done", None)

    @property
    def smoke(self) -> bool:
        """True if the run was too small to measure anything."""
        return self.info.get("preset") == "smoke"

    @property
    def device(self) -> str:
        """`cpu` or `cuda`."""
        return str(self.info.get("device", "cpu"))

    @property
    def machine_name(self) -> str:
        """The machine in a few words, with the label of a run that others made."""
        name = machine_name(self.machine, self.device)
        return f"{name} ({self.label})" if self.label else name

    @property
    def label(self) -> str:
        """Label of a run that others made, "" for a run of one's own."""
        return label_of(self.info)

    @property
    def twins(self) -> list[str]:
        """Datasets that a synthetic twin stood in for."""
        return sorted(name for name, twin in dataset_kinds(self.rows).items() if twin)

    @property
    def datasets(self) -> list[str]:
        """All datasets that were used."""
        return sorted(dataset_kinds(self.rows))

    @property
    def rounds(self) -> str:
        """Outcome of groups that may get further rounds, as the terminal says it, or ""."""
        record = RoundsRecord.kept(self.info)
        return record.sentence.removeprefix("rounds: ") if record is not None else ""

    @property
    def duration(self) -> str:
        """Wall time from the first process to the end of the last, or ""."""
        from datetime import datetime

        try:
            begin = datetime.fromisoformat(str(self.info["started"]))
            end = datetime.fromisoformat(str(self.info["ended"]))
            return clock((end - begin).total_seconds())
        except (KeyError, TypeError, ValueError):  # also where only one of them has a zone
            return ""

    @property
    def noise(self) -> float | None:
        """Noise floor of all of its A/A pairs together; a race is judged by `floor`."""
        return self.noise_pairs.of_run()

    def floor(self, paper: Any, experiment: str) -> float | None:
        """Noise floor of an experiment of a paper, in its figures, tables and sentences."""
        return self.noise_pairs.floor(paper, [experiment])

    def floors_text(self, paper: Any) -> str:
        """Noise floors of a paper's experiments that ran, `±4.6 %` or `±3.5 % to ±17.9 %`; "" where
        none was measured."""
        ran = dict.fromkeys(row.experiment for row in self.rows if row.paper == paper.name)
        measured = [found for name in ran if (found := self.floor(paper, name)) is not None]
        ends = [f"±{100 * end:.1f} %" for end in (min(measured), max(measured))] if measured else []
        return " to ".join(dict.fromkeys(ends))

    def context(self, paper: Any = None, experiment: str = "") -> Context:
        """Facts about this run that a figure shows.

        Args:
            paper: of the figure. experiment: of the figure; "" for a figure of several, which
                has no noise floor in common.
        """
        stamp = ""
        lacks = self.left_trained if experiment in self.trained else self.left - self.left_trained
        if self.smoke:
            stamp = "SMOKE, not a measurement"
        elif lacks > 0 or self.info.get("state") not in ("done", None):
            stamp = "PARTIAL"
        context = Context(
            machine=self.machine_name,
            device=self.device,
            date=str(self.info.get("started", ""))[:10],
            run=self.store.run,
            preset=str(self.info.get("preset", "")),
            noise=self.floor(paper, experiment) if experiment else None,
            stamp=stamp,
        )
        if experiment not in self.trained:
            return self._of_other_presets(context, experiment)
        first = min(
            (r for r in self.rows if r.experiment == experiment and r.preset == "quality"),
            key=lambda r: r.started,
        )
        return replace(
            context, run=first.run, date=first.started[:10], preset=first.preset, noise=None
        )

    def _of_other_presets(self, context: Context, experiment: str) -> Context:
        """A context that tells of groups of another preset, which were kept beside this run."""
        mine = [r for r in self.rows if r.experiment == experiment and r.ok and r.preset]
        presets = list(dict.fromkeys(r.preset for r in mine))
        if presets in ([], [context.preset]):
            return context
        if len(presets) > 1:
            return replace(context, preset=" and ".join(presets))
        first = min(mine, key=lambda r: r.started)
        return replace(context, preset=presets[0], run=first.run, date=first.started[:10])

    def tally(self) -> dict[str, int]:
        """Cells ok, not run here, void and failed; see `cell_states`."""
        values = list(cell_states(self.rows).values())
        return {word: values.count(word) for word in TALLIED}


def is_limits(row: Row) -> bool:
    """Return True if a row holds the machine's own limits."""
    return row.paper == "-" and row.experiment == "machine"


def load_run(path: Path) -> RunData:
    """Read a run's folder. Raises StoreError where it is none."""
    store = Store.open(path)
    everything = store.rows()
    rows = without_control(everything)
    plan = store.read_plan() or {}
    cells = plan.get("cells", [])
    seen = {row.cell_hash for row in everything}
    provenance = store.provenance()
    newest = list(provenance.values())[-1] if provenance else {}
    aside = path / "rows.torn"
    torn = len(store.torn)
    if aside.is_file():
        torn += sum(line.startswith(b"# ") for line in aside.read_bytes().splitlines())
    info = {k: plan[k] for k in ("preset", "device") if k in plan} | store.info
    papers = list(dict.fromkeys(r.paper for r in rows))
    machine, device = newest.get("machine", {}), str(info.get("device", "cpu"))
    kept = not store.rows_path.is_file() and path.name in (info.get("papers") or papers)
    where = slug(path.resolve().parent.name if kept else machine_name(machine, device))
    if label := label_of(info):
        where += f"-{slug(label)}"  # never merged with a machine's own runs
    ordered = sorted(everything, key=lambda r: (r.ok, r.paper, r.experiment))
    pages = [ordered[i : i + ROWS_A_PAGE] for i in range(0, len(ordered), ROWS_A_PAGE)] or [[]]
    ran = len({r.cell_hash for r in rows})
    # A reference has no plan; how many cells were planned stands in its run.json.
    kept_cells = int(info.get("planned") or 0) + int(info.get("trained") or 0)
    planned = len(cells) or max(kept_cells, ran)
    whole = [r for r in rows if r.preset == "quality"] if info.get("trained") else []
    lacking = int(info.get("trained") or 0) - len({r.cell_hash for r in whole})
    return RunData(
        store=store,
        rows=rows,
        everything=everything,
        planned=planned,
        left=sum(c.get("hash") not in seen for c in cells) if cells else planned - ran,
        torn=torn,
        noise_pairs=NoisePairs.of(everything),
        machine=machine,
        limits=next(
            (limits_in(r.observed) for r in reversed(everything) if is_limits(r) and r.ok), {}
        ),
        info=info,
        papers=papers,
        slug=f"{where}-{slug(path.name)}" if kept else store.run,
        machine_slug=where,
        kept=kept,
        pages=pages,
        places={row.id: number for number, page in enumerate(pages) for row in page},
        trained=frozenset(r.experiment for r in whole),
        left_trained=0 if cells else max(0, lacking),
        commit=str((newest.get("code") or {}).get("commit") or "")[:12],
    )


def slug(name: str) -> str:
    """A name as a file name: lower case, everything but letters, digits and `._` as `-`."""
    return re.sub(r"[^a-z0-9._]+", "-", name.lower()).strip("-.") or "unnamed"


def machine_name(machine: dict[str, Any], device: str) -> str:
    """`2 cores, Intel Xeon Platinum 8481C`, with the GPU in front where it was used."""
    cpu = machine.get("cpu", {})
    model = " ".join(
        str(cpu.get("model", "unknown CPU")).replace("(R)", "").replace("(TM)", "").split()
    )
    model = model.partition(" @ ")[0].replace(" CPU", "").replace(" Processor", "")
    cores = cpu.get("usable") or cpu.get("cores") or 0
    name = f"{cores} cores, {model}" if cores != 1 else f"1 core, {model}"
    gpus = machine.get("gpus") or []
    if device == "cuda" and gpus:
        return f"{gpus[0].get('name', 'GPU')}, {name}"
    return name


def machine_of(store: Store) -> str:
    """`machine_name` of the machine of a run's newest row."""
    newest = list(store.provenance().values())[-1:]
    machine = newest[0].get("machine", {}) if newest else {}
    return machine_name(machine, str(store.info.get("device", "cpu")))


def gpu_name(store: Store) -> str:
    """Name of the first GPU of a run's machine, or ""."""
    provenance = list(store.provenance().values())
    gpus = provenance[-1].get("machine", {}).get("gpus") if provenance else None
    return str(gpus[0].get("name", "a GPU")) if gpus else ""
