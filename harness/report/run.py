"""What a report needs to know of a run, read from its folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dgbench.harness.figures.style import Context
from dgbench.harness.store import Row, Store
from dgbench.harness.terminal.verdicts import clock, dataset_kinds
from dgbench.runtime.statistics import noise_floor
from dgbench.systems.base.compare import control_ratios, without_control

FAILED = ("oom", "time", "crash", "check")
STATUS_MEANING = {
    "oom": "out of memory",
    "time": "time limit",
    "crash": "crashed",
    "check": "wrong result",
    "no-gpu": "no GPU",
    "not-supported": "not supported",
    "not-built": "not built",
    "skipped": "skipped",
    "ok": "ok",
}


@dataclass(frozen=True, slots=True)
class RunData:
    """A run as pages show it.

    Attributes:
        store: its folder. rows: the last attempt of each process, without the machine's own rows
            and without A/A controls. everything: all of them.
        planned: cells of the plan; started: cells with a row; left: cells without.
        torn: lines that were set aside. limits: what the machine can do, measured in this run.
    """

    store: Store
    rows: list[Row]
    everything: list[Row]
    planned: int
    left: int
    torn: int
    noise: float | None
    machine: dict[str, Any]
    limits: dict[str, float]
    info: dict[str, Any]
    papers: list[str] = field(default_factory=list)

    @property
    def machine_rows(self) -> list[Row]:
        """The machine's limits as rows; figures get them beside an experiment's own."""
        return [r for r in self.everything if r.paper == "-" and r.ok]

    @property
    def partial(self) -> bool:
        """Whether cells of the plan are missing."""
        return self.left > 0 or self.info.get("state") not in ("done", None)

    @property
    def smoke(self) -> bool:
        """Whether the run was too small to measure anything."""
        return self.info.get("preset") == "smoke"

    @property
    def device(self) -> str:
        """`cpu` or `cuda`."""
        return str(self.info.get("device", "cpu"))

    @property
    def machine_name(self) -> str:
        """The machine in a few words."""
        return machine_name(self.machine, self.device)

    @property
    def twins(self) -> list[str]:
        """Datasets that a synthetic twin stood in for."""
        return sorted(name for name, twin in dataset_kinds(self.rows).items() if twin)

    @property
    def datasets(self) -> list[str]:
        """All datasets that were used."""
        return sorted(dataset_kinds(self.rows))

    @property
    def duration(self) -> str:
        """Wall time from the first process to the end of the last, or ""."""
        from datetime import datetime

        try:
            begin = datetime.fromisoformat(str(self.info["started"]))
            end = datetime.fromisoformat(str(self.info["ended"]))
        except (KeyError, ValueError):
            return ""
        return clock((end - begin).total_seconds())

    def context(self) -> Context:
        """What every figure says of this run."""
        stamp = ""
        if self.smoke:
            stamp = "SMOKE, not a measurement"
        elif self.partial:
            stamp = "PARTIAL"
        return Context(
            machine=self.machine_name,
            device=self.device,
            date=str(self.info.get("started", ""))[:10],
            run=self.store.run,
            preset=str(self.info.get("preset", "")),
            noise=self.noise,
            stamp=stamp,
        )

    def tally(self) -> dict[str, int]:
        """Cells ok, failed and not run here; a cell with one failed process failed."""
        state: dict[str, str] = {}
        order = ("ok", "missing", "failed")
        for row in self.rows:
            now = "ok" if row.ok else "failed" if row.status in FAILED else "missing"
            key = row.cell_hash or row.id
            state[key] = max(state.get(key, "ok"), now, key=order.index)
        values = list(state.values())
        return {word: values.count(word) for word in order}


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
    return RunData(
        store=store,
        rows=rows,
        everything=everything,
        planned=len(cells) or len({r.cell_hash for r in rows}),
        left=sum(c.get("hash") not in seen for c in cells),
        torn=torn,
        noise=noise_floor(control_ratios(everything)),
        machine=newest.get("machine", {}),
        limits=next((dict(r.values) for r in reversed(everything) if r.paper == "-" and r.ok), {}),
        info=info,
        papers=list(dict.fromkeys(r.paper for r in rows)),
    )


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


def gpu_name(store: Store) -> str:
    """Name of the first GPU of a run's machine, or ""."""
    provenance = list(store.provenance().values())
    gpus = provenance[-1].get("machine", {}).get("gpus") if provenance else None
    return str(gpus[0].get("name", "a GPU")) if gpus else ""
