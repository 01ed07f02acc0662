"""From the end of a process to its row."""

from __future__ import annotations

import contextlib
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from dgbench.harness.probes.series import Recording, pack
from dgbench.harness.runner.client import LOG_BYTES, ProcessExit
from dgbench.harness.runner.credible import against_wall
from dgbench.harness.runner.protocol import LEFT_WORK_S, UNWRITTEN, Result, signal_name
from dgbench.harness.runner.readable import readable
from dgbench.harness.store import Row, Store
from dgbench.harness.store.standing import of_others
from dgbench.lab import metrics
from dgbench.lab.experiment import Cell
from dgbench.lab.probes import sources

if TYPE_CHECKING:
    from dgbench.harness.plan import Plan

TAIL_LINES, TAIL_BYTES = 24, 2000

FATAL = "Fatal Python error"
"""First words of the report of Python's crash handler."""

KEPT_BYTES = 512 << 10
"""Most bytes of a log's beginning and of its end that are kept."""

NOT_REACHED = "asked for on cuda, but no work of it reached a device: it is a row of the CPU"
"""Note of a row whose process allocated and launched nothing on the device it was given."""

COPYING, SLACK, SLACK_S = 1, 0.05, 0.5
"""Threads that copy beside those that compute; share and seconds of processor time that clocks may
be off by."""

NEAR = 0.8
"""A process killed from outside with this share of its limit in use was killed for memory."""


def blank_row(
    plan: Plan,
    store: Store,
    cell: Cell,
    hash_: str,
    number: int = 1,
    instrumented: bool = False,
    *,
    status: str = "ok",
    reason: str = "",
    provenance: str = "",
    node: str = "",
    resumed: int = 0,
) -> Row:
    """The row of a process before it ran, or of one that never will; its id is the next attempt.

    Args:
        number: of the round. status, reason: of a process that does not start.
        resumed: how often the run was resumed before.
    """
    name = f"{hash_[:8]}-r{number}{'i' if instrumented else ''}"
    earlier = store.attempts(name)
    return Row(
        id=f"{name}.{earlier + 1}" if earlier else name,
        run=store.run,
        cell_hash=hash_,
        paper=cell.paper,
        experiment=cell.experiment,
        params=dict(cell.params),
        group=cell.group,
        round=number,
        device=cell.device or plan.device,
        preset=plan.preset,
        instrumented=instrumented,
        status=status,
        reason=reason,
        started=datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
        provenance=provenance,
        node=node,
        resumed=resumed,
    )


def fill_row(
    row: Row,
    cell: Cell,
    outcome: ProcessExit | None,
    log: Path,
    result: Path,
    recording: Recording | None = None,
) -> Result | None:
    """Put into `row` how its process ended and what it measured; removes the result file.

    Returns what the process left, None where it left nothing.

    Args:
        outcome: None where the fork server died with the process twice.
        log, result: what the process printed and left. An empty log is removed.
        recording: what was read while it ran, also where it came to a bad end.
    """
    found, trouble = _read(result)
    with contextlib.suppress(OSError):
        result.unlink(missing_ok=True)
        Path(f"{result}.part").unlink(missing_ok=True)
    row.status, row.reason = _status(cell, outcome, found, trouble)
    if outcome is not None:
        _probe(row, outcome, found)
        told = found.told if found is not None else {}
        try:
            row.series = pack(recording, outcome.ended.seconds, told)
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            row.notes.append(f"its phases over time are not kept: {readable(str(error))}")
    if found is not None:
        row.notes += [readable(note) for note in found.notes]
        if row.status in ("ok", "check"):
            _measured(row, found)
        _stamp(row, cell, found)
        _judge(row, cell)
    row.reason = " ".join(readable(row.reason).split())
    size = _shorten(log)
    if size:
        row.notes.append(f"printed {size / 2**20:,.1f} MiB; the middle of its log is left out")
    tail = _tail(log)
    if tail:
        row.log = f"logs/{log.name}"
    if row.status == "crash" and tail:
        printed = tail.partition(FATAL)[0].rstrip()
        last = printed.splitlines()[-1].strip() if printed else ""
        if last and last not in row.reason and found is None:
            row.reason += f"; last line of its log: {last[:160]}"
        row.notes.append(f"end of its log:\n{tail}")
    return found


def gib(count: int, of: int) -> str:
    """`21.9 of 24.0 GiB`, or MiB where the limit is small."""
    unit, scale = ("GiB", 2**30) if of >= 2**30 else ("MiB", 2**20)
    return f"{count / scale:.1f} of {of / scale:.1f} {unit}"


def _status(
    cell: Cell, outcome: ProcessExit | None, found: Result | None, trouble: str
) -> tuple[str, str]:
    if outcome is None:
        return "crash", "the fork server died with it, twice"
    memory = gib(outcome.peak_bytes, outcome.limit_bytes)
    if outcome.killed == "oom":
        return "oom", f"out of memory, {memory}"
    if outcome.killed == "time":
        return "time", f"stopped at its limit of {cell.timeout_s:g} s"
    if outcome.killed == "log":
        return "crash", f"stopped because it printed more than {LOG_BYTES >> 20} MiB"
    if found is not None and outcome.ended.code == 0:
        if found.status == "ok":
            doubts = against_wall(found.measurement, outcome.ended.seconds)
            doubts += outcome.doubts + _too_much_work(outcome, found)
            if doubts:
                name = f"{cell.paper}/{cell.experiment}"
                return "check", f"{name} cannot be believed: {'; '.join(doubts)}"
        if found.status == "oom" and "GPU" not in found.reason:
            return "oom", f"{found.reason} (its processes held {memory})"
        return found.status, found.reason
    code = outcome.ended.code
    near = outcome.peak_bytes >= NEAR * outcome.limit_bytes
    if outcome.killed == "system" or (code == -9 and near):
        return "oom", f"out of memory, killed by the system at {memory}"
    if code < 0:
        return "crash", f"killed by {signal_name(-code)}"
    if trouble:
        return "crash", trouble
    if code == UNWRITTEN:
        return "crash", "its result could not be written; the disk was full or broken"
    return "crash", f"the process ended with exit code {code} and without a result"


def _too_much_work(outcome: ProcessExit, found: Result) -> list[str]:
    """Work beyond the threads of a process, or of what it left behind."""
    said, ended = [], outcome.ended
    own = 1 + int(found.touched.get("joined", 0))
    allowed = own * (outcome.threads + COPYING) * ended.seconds
    if outcome.threads and ended.cpu_s > (1 + SLACK) * allowed + SLACK_S:
        said.append(
            f"its processes used {ended.cpu_s:.3g} s of processor time, and {outcome.threads} "
            f"threads and one that copies have {allowed:.3g} s"
        )
    if ended.left and ended.left_cpu_s >= LEFT_WORK_S:
        names = ", ".join(dict.fromkeys(readable(name, 40) for name in ended.left))
        said.append(f"what it left behind went on working: {names}")
    return said


def _probe(row: Row, outcome: ProcessExit, found: Result | None) -> None:
    ended = outcome.ended
    row.seconds = ended.seconds
    measured = found.touched.get("peak_rss_bytes", 0) if found is not None else 0
    row.probes["peak_rss_bytes"] = measured or outcome.peak_bytes
    if found is not None and found.base_rss_bytes:
        # Python, torch and all else that the fork server had imported before the cell began.
        row.probes["base_rss_bytes"] = found.base_rss_bytes
    if ended.seconds > 0:
        row.probes["cpu_percent"] = round(100 * ended.cpu_s / ended.seconds, 1)
    row.probes["context_switches_voluntary"] = ended.voluntary
    row.probes["context_switches_involuntary"] = ended.involuntary
    row.probes["read_bytes"] = ended.read_bytes
    row.probes["written_bytes"] = ended.written_bytes
    if found is not None and "check_s" in found.touched:
        row.probes["check_s"] = round(found.touched["check_s"], 4)
    if outcome.processes > 1:
        row.probes["processes"] = outcome.processes
    if ended.left and not outcome.killed:
        names = ", ".join(dict.fromkeys(readable(name, 40) for name in ended.left))
        count = f"{len(ended.left)} process" + ("es" if len(ended.left) > 1 else "")
        row.notes.append(f"left {count} running when it was done: {names}; ended by the harness")


def _stamp(row: Row, cell: Cell, found: Result) -> None:
    """Note what the process touched, and hold the row to it.

    The device becomes the one that work reached. A row that says less or more of its device or of
    its data than its process saw is a `check` row.
    """
    if not found.touched:
        return
    asked, reached = row.device, found.touched["device"]
    row.touched = {**found.touched, "asked": asked, "probes": sources(row.probes)}
    if row.status not in ("ok", "check"):
        return
    row.device = reached
    doubts = []
    if asked == "cuda" and reached == "cpu":
        row.notes.append(NOT_REACHED)
    elif asked != reached:
        doubts.append(f"it was to work on the CPU, and work of it reached '{reached}'")
    name, opened = row.data.get("dataset"), found.touched["data"]
    kinds = {data["kind"] for data in opened if data["dataset"] == name}
    if row.data.get("twin") is False and kinds == {"twin"}:
        doubts.append(f"it says that it used the real data of '{name}', and it opened the twin")
    if opened and "twin" not in row.data:
        row.data = {**row.data, "twin": any(data["kind"] == "twin" for data in opened)}
    if doubts and row.status == "ok":
        row.status = "check"
        row.reason = f"{cell.paper}/{cell.experiment} cannot be believed: {'; '.join(doubts)}"
        row.checks = []
        row.observed = []


def _judge(row: Row, cell: Cell) -> None:
    """A result that fails a check of its own makes a `check` row, whatever the experiment says.

    It keeps numbers of contenders that passed.
    """
    wrong = [check for check in row.checks if not check.passed]
    if wrong and row.status == "ok":
        row.status = "check"
        row.observed = of_others(row)
        row.reason = f"{cell.paper}/{cell.experiment}: {'; '.join(c.words for c in wrong[:3])}"


def _measured(row: Row, found: Result) -> None:
    m = found.measurement
    row.deviation = m.deviation
    row.notes += [readable(note) for note in m.notes]
    row.data = m.data
    if row.status != "ok":
        return  # what cannot be believed has no time, and no check that says otherwise
    row.checks, row.observed, row.warmup = m.checks, m.observations, m.warmup
    row.metrics = found.metrics
    metrics.adopt(found.metrics)


def _read(path: Path) -> tuple[Result | None, str]:
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=Result), ""
    except FileNotFoundError:
        return None, ""
    except (OSError, msgspec.MsgspecError, ValueError) as error:
        return None, f"its result cannot be read: {error}"


def _tail(path: Path) -> str:
    """Last lines of a log; "" where nothing was printed, and then the file is removed."""
    try:
        size = path.stat().st_size
        if size == 0:
            path.unlink()
            return ""
        with path.open("rb") as file:
            file.seek(max(0, size - 16 * TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    # Python's crash handler prints the whole stack and a list of every extension module.
    printed, fatal, stack = text.partition(FATAL)
    lines = printed.rstrip().splitlines()[-TAIL_LINES:]
    if fatal:
        lines = [*lines[-TAIL_LINES // 2 :], *(fatal + stack).splitlines()[: TAIL_LINES // 2]]
    return readable("\n".join(lines)[-TAIL_BYTES:])


def _shorten(path: Path) -> int:
    """Cut the middle out of a long log; its size before, or 0 where nothing was cut."""
    with contextlib.suppress(OSError):
        size = path.stat().st_size
        if size <= 3 * KEPT_BYTES:
            return 0
        with path.open("r+b") as file:
            file.seek(size - KEPT_BYTES)
            end = file.read()
            file.seek(KEPT_BYTES)
            left_out = size - 2 * KEPT_BYTES
            file.write(f"\n[... {left_out:,} bytes are left out here ...]\n".encode() + end)
            file.truncate()
        return size
    return 0
