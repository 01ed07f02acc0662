"""One process of one cell, as it is kept."""

from __future__ import annotations

import statistics
from typing import Annotated, Any

import msgspec

from dgbench.harness.store import texts
from dgbench.lab import metrics
from dgbench.lab.judging import note_read
from dgbench.lab.result_checks import ResultCheck
from dgbench.lab.table import Observation
from dgbench.runtime.documents import decode_json
from dgbench.runtime.errors import StoreError

SCHEMA = 4
"""Version of the row format; a change of meaning or of a name raises it."""

STATUSES = (
    "ok",
    "oom",
    "time",
    "crash",
    "check",
    "void",
    "no-gpu",
    "not-supported",
    "not-built",
    "skipped",
)
VOID = "void"
"""Status that a row gets when it is read, where its result was found wrong or was not compared
with anything; it is never written. See `harness.store.standing`."""
FAILED = ("oom", "time", "crash", "check")
"""Statuses that `--retry failed` runs again; the others say what this machine lacks."""
LACKING = tuple(s for s in STATUSES if s not in ("ok", VOID, *FAILED))
"""Statuses of cells that cannot run here: a second process of such a cell would say the same."""


class FailedBefore(msgspec.Struct, frozen=True):
    """A failed check of an earlier attempt of a process.

    Attributes:
        attempt: id of its row. contender: whose result it was, "" where none is named.
        reason: what was wrong. workload: params of the cell, and dimensions that the check names.
    """

    attempt: str
    contender: str
    reason: str
    workload: dict[str, Any] = {}


class Row(msgspec.Struct, kw_only=True, dict=True):
    """Raw result of one process. Nothing in it is derived from other rows.

    Attributes:
        id: `<first 8 of cell_hash>-r<round>`, `i` behind it for the instrumented process and
            `.2`, `.3` for later attempts. The same plan gives the same ids.
        schema: version of this format.
        run: id of the run.
        cell_hash: content hash of the cell, see `harness.plan`.
        paper, experiment, params, group, round: where it belongs; rounds count from 1.
        device: `cpu` or `cuda`: what the process reached, or where none ran or it left nothing,
            what it was asked for (`asked`). preset: preset of the run.
        instrumented: True where phases were timed; its clock is never compared.
        status: one of `STATUSES`. reason: one line that says why it is not `ok`.
        log: path of what the process printed, relative to the run's folder.
        warmup, deviation, data, notes: of the `Measurement`. Empty where the status is not `ok`,
            except of a failed check.
        probes: numbers taken from outside (`peak_rss_bytes`, `cpu_percent`, `energy_mj` ...),
            or a sentence under the same name that says why there is no number.
        seconds: wall time of the process from fork to exit.
        started: UTC, ISO 8601.
        provenance: key into the run's `provenance.json`.
        series: what the machine did while the process ran, in the form of `probes.series.pack`;
            of the instrumented process of a cell, or of its first one where there is none. Empty
            (and then not written) elsewhere.
        touched: what the process reached, as it recorded it: `device` and `asked`; `cuda`, its
            launches and allocations there; `data`, what it opened; `libraries`, versions by name;
            `probes`, the sources whose probes hold numbers. Empty (and not written) where no
            process told.
        checks: what of its result was compared with a reference, see `ResultCheck`. Empty (and
            not written) where nothing was.
        observed: its numbers, after a failed check those of contenders that passed.
        metrics: kind and words of those metrics that are no part of dgbench's catalogue.
        looks: how often at most the run looked at the results of its group to decide whether that
            needs more rounds (`harness.plan.rounds`); 0 where the number of rounds was fixed.
        disturbed: what disturbed the process beyond the limits of `harness.probes.disturbance`.
        repeats: the disturbed round of its group that this one repeats, or 0.
        replaced: whether another round counts in place of its own (`standing.mark_replaced`); then
            it takes no part in ratios. Set when rows are read.
        dropped: contenders whose numbers were taken away, with why: they gave a wrong result on
            its workload. Set when rows are read.
        failed_before: checks that earlier attempts of its process failed. Set when rows are read.
        node: label of the cluster's node that its process ran on, see `harness.cluster`; "" (and
            not written) where a run is of one machine.
        resumed: how often its run had been resumed when its process started; not written where it
            is 0.
        rests_on_cell: whether another process of its cell may have compared for it, as was so
            before schema 4. Not written where it is False.
    """

    id: str
    schema: int = SCHEMA
    run: str = ""
    cell_hash: str = ""
    paper: str = ""
    experiment: str = ""
    params: dict[str, Any] = {}
    group: str = ""
    round: int = 1
    device: str = "cpu"
    preset: str = "quick"
    instrumented: bool = False
    status: str = "ok"
    reason: str = ""
    log: str = ""
    warmup: int = 0
    deviation: dict[str, float] = {}
    data: dict[str, Any] = {}
    notes: list[str] = []
    probes: dict[str, Any] = {}
    seconds: float = 0.0
    started: str = ""
    provenance: str = ""
    series: dict[str, Any] = {}
    touched: dict[str, Any] = {}
    checks: list[ResultCheck] = []
    observed: list[Observation] = []
    metrics: dict[str, tuple[str, str]] = {}
    looks: int = 0
    disturbed: str = ""
    repeats: int = 0
    replaced: bool = False
    rests_on_cell: bool = False
    dropped: dict[str, str] = {}
    failed_before: list[FailedBefore] = []
    node: str = ""
    resumed: int = 0

    @property
    def observations(self) -> list[Observation]:
        """Its numbers, under the name that they have in a `Measurement`."""
        return self.observed

    @property
    def system(self) -> str:
        """The system that it ran, without a setting; "" where it names none."""
        return texts.system_of(self.params)

    @property
    def datasets(self) -> list[str]:
        """The datasets that it names, as it spells them."""
        return texts.datasets_of(self.params, self.data)

    @property
    def data_notes(self) -> tuple[str, ...]:
        """Notes on its data, sentence by sentence."""
        return texts.notes_of(self.data)

    @property
    def read_sizes_only(self) -> bool:
        """True if it used printed sizes of its data and read none."""
        return texts.printed(self.data)

    @property
    def asked(self) -> str:
        """The device that the process was asked to work on."""
        return self.touched.get("asked", self.device)

    @property
    def time(self) -> float | None:
        """Median of its steady iterations in seconds; None where nothing was timed."""
        note_read(self, "step_time")
        return statistics.median(self.steady) if self.steady else None

    @property
    def steady(self) -> list[float]:
        """Seconds of each iteration of what the process was started to time; empty without."""
        note_read(self, "step_time")
        timed = (one.samples for one in self.observed if one.samples and not one.dims)
        return next(timed, [])

    @property
    def ok(self) -> bool:
        """True if the process completed its cell (status `ok`)."""
        return self.status == "ok"


class Info(msgspec.Struct):
    """The entries of run.json that readers look into; there may be any others."""

    run: str
    stamp: str = ""
    state: str = ""
    started: str | None = None
    ended: str | None = None
    note: str | None = None
    command: str | None = None
    preset: str | None = None
    device: str | None = None
    planned: Annotated[int, msgspec.Meta(ge=0)] | None = None
    trained: Annotated[int, msgspec.Meta(ge=0)] | None = None
    nodes: dict[str, str] | None = None
    threads: int | None = None
    papers: list[str] | None = None
    experiments: list[str] | None = None


class _Machine(msgspec.Struct, frozen=True):
    cpu: dict[str, Any] = {}
    gpus: list[dict[str, Any]] | None = None


class Facts(msgspec.Struct):
    """The parts of a row's provenance that readers look into; there may be any others."""

    code: dict[str, Any] = {}
    packages: dict[str, Any] = {}
    machine: _Machine = _Machine()


_ENCODER = msgspec.json.Encoder()
_LEFT_OUT = (
    "series", "touched", "checks", "observed", "metrics", "looks", "disturbed", "repeats",
    "replaced", "rests_on_cell", "dropped", "failed_before", "node", "resumed",
)  # fmt: skip
"""Fields that are not written where they are empty."""


def encode(row: Row) -> bytes:
    """A row as JSON bytes, without a line break."""
    names = row.__struct_fields__
    plain = {name: getattr(row, name) for name in names}
    return _ENCODER.encode(
        {name: value for name, value in plain.items() if value or name not in _LEFT_OUT}
    )


def decode(payload: bytes) -> Row:
    """A row from JSON bytes, its metrics known to the catalogue.

    Raises:
        StoreError: the row is of another schema.
        msgspec.MsgspecError: the bytes are not a row.
    """
    schema = decode_json(payload, _Schema).schema
    if schema != SCHEMA:
        other = "a newer" if schema > SCHEMA else "an older"
        raise StoreError(
            f"a row has schema {schema}, this dgbench reads {SCHEMA}",
            hint=f"{other} dgbench wrote these results (see provenance.json); read them with it",
        )
    row = decode_json(payload, Row)
    metrics.adopt(row.metrics)
    metrics.adopt({one.metric: ("score", "a number of another dgbench") for one in row.observed})
    return row


class _Schema(msgspec.Struct):
    schema: int
