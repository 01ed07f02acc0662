"""Main program of a cell's own process."""

from __future__ import annotations

import contextlib
import faulthandler
import math
import os
import random
import re
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from dgbench.harness.probes.scheduling import Scheduling, SchedulingWatch
from dgbench.harness.probes.series import tell
from dgbench.harness.runner.credible import against_loops, negative_counters, without_witness
from dgbench.harness.runner.protocol import UNWRITTEN, Job, Result
from dgbench.harness.runner.readable import message, readable
from dgbench.lab.catalogue import METER_METRICS
from dgbench.lab.compare import CONTROL, OWN_DATA
from dgbench.lab.experiment import Cell, Experiment, Measurement, RunContext
from dgbench.lab.metrics import METRICS, own
from dgbench.lab.result_checks import with_owners
from dgbench.lab.table import Observation, plain, plain_number
from dgbench.lab.table import check as check_observation
from dgbench.runtime import touched
from dgbench.runtime.draws import seed_draws
from dgbench.runtime.errors import (
    CheckFailed,
    DataWarning,
    DgbenchError,
    MissingDataError,
    MissingPackageError,
    UnsupportedError,
)
from dgbench.systems.base.registry import own_papers

if TYPE_CHECKING:
    from dgbench.runtime.meter import Meter

MEASUREMENT_BYTES = 1 << 20
"""Most bytes of a measurement; those of all papers stay below 50 kB."""

_NO_GPU = re.compile(
    r"no NVIDIA driver|Torch not compiled with CUDA enabled|no CUDA-capable device"
    r"|no CUDA devices?\b|no CUDA GPUs are available",
    re.I,
)
_MEMORY = re.compile(r"out of memory|can't allocate memory|cannot allocate memory|bad_alloc", re.I)


def run_child(job: Job, lookup: Callable[[str], Any]) -> None:
    """Run one cell and end the process. What it prints goes to `job.log`."""
    base, me = _resident(), os.getpid()
    touched.clear()
    try:
        _redirect(job.log)
        _prefer_as_victim()
        result = _run(job, lookup)
    except BaseException as error:  # SystemExit and KeyboardInterrupt of a plugin, too
        result = explain(error)
    if os.getpid() != me:
        os._exit(0)  # a fork that a plugin made and let go on
    result.base_rss_bytes = base
    result.notes += _left_threads()
    with contextlib.suppress(Exception):  # a broken device may refuse to tell its counters
        result.touched = {**touched.record(), "libraries": touched.libraries()}
    code = 0
    try:
        _write(job.result, result)
    except OSError as error:
        code = UNWRITTEN
        with contextlib.suppress(OSError):
            print(f"cannot write {job.result}: {error}", file=sys.stderr)
    finally:
        _flush()
    os._exit(code)


def _run(job: Job, lookup: Callable[[str], Any]) -> Result:
    import torch

    from dgbench.datasets.store import disturbed, watch_writes
    from dgbench.harness.runner.replaced import (
        replaced_functions,
        shared_functions,
        too_many_threads,
    )
    from dgbench.runtime.cuda_driver import has_driver, import_patching
    from dgbench.runtime.meter import SpanLog, keep_spans
    from dgbench.runtime.precision import changed_settings, plain_products, torch_settings
    from dgbench.runtime.steady import seen_loops
    from dgbench.systems.base.kept import begin_kept, kept_in_process

    torch.set_num_threads(job.threads)
    torch.manual_seed(job.seed)
    random.seed(job.seed)
    plain_products()
    settings, scheduling = torch_settings(), Scheduling.of(os.getpid())
    if job.cell.paper == "-" and job.cell.experiment == "noise":
        from dgbench.harness.machine.noise import train_reference

        return Result(status="ok", measurement=train_reference(_context(job)))
    if job.cell.paper == "-":
        from dgbench.harness.machine.limits import measure_limits

        limits = measure_limits(job.device, budget_s=0.3 if job.preset == "smoke" else 2.0)
        return Result(status="ok", measurement=Measurement(observations=limits))
    spans = SpanLog() if job.instrumented else None
    keep_spans(spans)
    context = _context(job)
    # Before a plugin is loaded, where the fork server has not done it: a driver that wakes as
    # libraries are imported leaves more to the cells.
    if has_driver() and not shared_functions.cache_info().currsize:
        import_patching()
    shared_functions()
    experiment = find_experiment(lookup(job.cell.paper), job.cell)
    params = {k: v for k, v in job.cell.params.items() if k not in (CONTROL, OWN_DATA)}
    watch_writes()
    seed_draws(job.draws)
    begin_kept(job.kept, sealed=True)
    with _data_warnings() as heard:
        measurement = experiment.run(msgspec.structs.replace(job.cell, params=params), context)
    if isinstance(measurement, Measurement):
        if job.cell.paper not in own_papers():
            _with_owners(measurement)
        _with_meter(measurement, context.meter, job.instrumented)
        _to_plain(measurement)
    wrong = complaints(measurement)
    name = f"{job.cell.paper}/{job.cell.experiment}"
    if not wrong:
        told = tell(spans) if spans is not None else {}
        loops = seen_loops()
        doubts = against_loops(measurement, loops, instrumented=job.instrumented)
        doubts += negative_counters(measurement)
        doubts += disturbed() + replaced_functions() + too_many_threads(job.threads, loops)
        for now in (torch_settings(), *(loop.settings for loop in loops)):
            doubts += [one for one in changed_settings(settings, now) if one not in doubts]
        watch = SchedulingWatch(scheduling)
        watch.look([os.getpid()])
        doubts += [f"it {words}" for words in watch.seen]
        heard += without_witness(measurement, loops)
        reason = f"{name} cannot be believed: {'; '.join(doubts)}" if doubts else ""
        status = "check" if doubts else "ok"
        theirs = own(one.metric for one in measurement.observations)
        made, used = kept_in_process()
        return Result(
            status=status, reason=reason, measurement=measurement, told=told, notes=heard,
            metrics=theirs, made=made, used=used,
        )  # fmt: skip
    if isinstance(measurement, Measurement) and wrong[0].startswith("not finite"):
        reason = f"{name} measured nonsense: {_several(wrong)}"
        return Result(status="check", reason=reason, notes=heard)
    reason = f"{name} handed back garbage: {_several(wrong)}"
    return Result(status="crash", reason=reason, notes=heard)


def _with_owners(measurement: Measurement) -> None:
    """Mark checks that a plugin formed itself; what is no check is left for `complaints`."""
    with contextlib.suppress(Exception):  # a plugin may have put anything there
        measurement.checks = with_owners(measurement.checks)
        measurement.notes += [one.words for one in measurement.checks if one.own and one.passed]


@contextlib.contextmanager
def _data_warnings() -> Iterator[list[str]]:
    """Record the datasets' warnings for the row, besides logging them."""
    heard: list[str] = []
    show = warnings.showwarning

    def listen(text, category, *rest, **more) -> None:
        if isinstance(category, type) and issubclass(category, DataWarning):
            heard.append(str(text))
        show(text, category, *rest, **more)

    with warnings.catch_warnings():
        warnings.simplefilter("always", DataWarning)
        warnings.showwarning = listen
        yield heard


def _left_threads() -> list[str]:
    """A note on Python's threads that still run; the end of the process ends them, too."""
    here = threading.current_thread()
    names = [readable(t.name, 40) for t in threading.enumerate() if t is not here]
    if not names:
        return []
    count = f"{len(names)} thread" + ("s" if len(names) > 1 else "")
    return [f"left {count} running when it was done: {', '.join(names[:4])}"]


def _several(words: list[str], most: int = 5) -> str:
    rest = f"; and {len(words) - most:,} more" if len(words) > most else ""
    return readable("; ".join(words[:most]) + rest)


def _context(job: Job) -> RunContext:
    from dgbench.runtime.meter import Meter

    return RunContext(
        device=job.device,
        preset=job.preset,
        threads=job.threads,
        instrumented=job.instrumented,
        meter=Meter(timing=job.instrumented, device=job.device),
        budget_s=job.budget_s,
        round=job.round,
    )


def find_experiment(paper: Any, cell: Cell) -> Experiment:
    """The experiment a cell belongs to. Raises DgbenchError if the paper has none of that name."""
    for experiment in paper.experiments:
        if experiment.name == cell.experiment:
            return experiment
    raise DgbenchError(f"paper '{cell.paper}' has no experiment '{cell.experiment}'")


def _with_meter(measurement: Measurement, meter: Meter, instrumented: bool) -> None:
    """Add what the meter counted, and in an instrumented process timed, where it was not told."""
    told = {one.metric for one in measurement.observations if not one.dims}
    for name, count in meter.counters.items():
        known = METER_METRICS.get(name, name)
        if known not in METRICS or not METRICS[known].exact:
            measurement.observe("meter_count", int(count), counter=name)
        elif known not in told:
            measurement.observe(known, int(count))
    if instrumented and not any(one.metric == "phase_time" for one in measurement.observations):
        for phase, seconds in meter.phases().items():
            measurement.observe("phase_time", seconds, phase=phase)


def complaints(measurement: Any) -> list[str]:
    """Problems of a measurement; numbers that are not finite come first."""
    if not isinstance(measurement, Measurement):
        return [f"a {type(measurement).__name__} instead of a Measurement"]
    found = []
    try:
        numbers = {
            "deviation": measurement.deviation,
            "checks": {check.of: check.gap + check.tolerance for check in measurement.checks},
        }
        for name, entries in numbers.items():
            for key, value in entries.items():
                if isinstance(value, float | int) and not math.isfinite(value):
                    found.append(f"not finite: {name}[{key!r}] is {value}")
        for one in measurement.observations:
            check_observation(one)
            if unreal := [n for n in _numbers_of(one) if not math.isfinite(n)]:
                found.append(f"not finite: {_told(one)} is {unreal[0]}")
            elif one.samples and min(one.samples) <= 0:
                found.append(f"{_told(one)} has a sample of {min(one.samples)} s")
            elif METRICS[one.metric].kind == "time" and one.value < 0:
                found.append(f"{_told(one)} is {one.value} s")
        if measurement.warmup < 0:
            found.append(f"warmup is {measurement.warmup}")
        for name in ("deviation", "data"):
            odd = [k for k in getattr(measurement, name) if not str(k).isprintable()]
            found += [f"{name} has the name {key!r}" for key in odd]
        msgspec.convert(msgspec.to_builtins(measurement), Measurement)
        msgspec.msgpack.encode(measurement)  # how it reaches the runner
        if (size := len(msgspec.json.encode(measurement))) > MEASUREMENT_BYTES:
            found.append(f"it takes {size:,} bytes, at most {MEASUREMENT_BYTES:,} are kept")
    except Exception as error:  # what a plugin put there may do anything when it is looked at
        found.append(message(error))
    return found


def _numbers_of(one: Observation) -> list[float]:
    return [one.value, *(end for end in (one.low, one.high) if end is not None), *one.samples]


def _told(one: Observation) -> str:
    return f"{one.metric}{one.dims or ''}"


def explain(error: BaseException) -> Result:
    """The status and the one line that an exception of a cell becomes."""
    text = message(error)
    hint = getattr(error, "hint", "")
    full = f"{text} ({' '.join(readable(str(hint)).split())})" if hint else text
    if isinstance(error, CheckFailed):
        print(f"check failed: {full}", file=sys.stderr)
        deviation = _numbers(error.deviation)
        return Result(status="check", reason=full, measurement=Measurement(deviation=deviation))
    if not isinstance(error, DgbenchError):
        with contextlib.suppress(Exception):  # it may fail to say what it is
            traceback.print_exception(type(error), error, error.__traceback__)
    torchs_or_ours = isinstance(error, AssertionError | RuntimeError | UnsupportedError)
    if torchs_or_ours and _NO_GPU.search(text):
        return Result(status="no-gpu", reason=full)
    if isinstance(error, UnsupportedError | MissingPackageError):
        return Result(status="not-supported", reason=full)
    if isinstance(error, MissingDataError):
        return Result(status="skipped", reason=full)
    if isinstance(error, ImportError):
        name = str(error.name or "")
        if name.startswith("dgbench.kernels_cuda"):
            return Result(status="not-built", reason=f"compiled operators are missing: {text}")
        if name and not name.startswith("dgbench"):
            return Result(
                status="not-supported", reason=f"package '{name}' is missing or broken: {text}"
            )
    if isinstance(error, DgbenchError):
        status = _of_a_rank(error) or ("time" if isinstance(error, TimeoutError) else "")
        if status:
            return Result(status=status, reason=full)
    if _is_memory(error, text):
        return Result(status="oom", reason=_memory_reason(text))
    return Result(
        status="crash",
        reason=full if isinstance(error, DgbenchError) else f"{type(error).__name__}: {text}",
    )


def _numbers(found: Any) -> dict[str, float]:
    """The finite numbers of a dictionary that a plugin made."""
    kept: dict[str, float] = {}
    with contextlib.suppress(Exception):
        for name, value in found.items():
            with contextlib.suppress(TypeError, ValueError, OverflowError):
                if math.isfinite(number := float(value)):
                    kept[readable(str(name), 100)] = number
    return kept


def _of_a_rank(error: DgbenchError) -> str:
    """Status of a cell in which a rank failed, "" for any other error; its trace goes to the log.

    The message names the rank and says what happened to it.
    """
    from dgbench.runtime.ranks.errors import RankError, RankMemoryError, RankTimeoutError

    if not isinstance(error, RankError):
        return ""
    if error.trace:
        print(error.trace, file=sys.stderr)
    if isinstance(error, RankTimeoutError):
        return "time"
    return "oom" if isinstance(error, RankMemoryError) else "crash"


def _is_memory(error: BaseException, text: str) -> bool:
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and _MEMORY.search(text) is not None
    )


def _memory_reason(text: str) -> str:
    import torch

    if "CUDA" in text and torch.cuda.is_initialized():
        used = torch.cuda.max_memory_allocated() / 2**30
        total = torch.cuda.get_device_properties(0).total_memory / 2**30
        return f"out of memory on the GPU, {used:.1f} of {total:.1f} GiB"
    return f"out of memory: {text[:200]}"


def _to_plain(measurement: Measurement) -> None:
    """Numpy and torch scalars become floats and ints; what cannot is left for `complaints`."""
    for name in ("deviation", "data"):
        numbers = getattr(measurement, name)
        if isinstance(numbers, dict):
            setattr(measurement, name, {k: plain_number(v) for k, v in numbers.items()})
    if isinstance(measurement.observations, list):
        measurement.observations = [
            plain(one) if isinstance(one, Observation) else one for one in measurement.observations
        ]


def _redirect(log: str) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(nothing, 0)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(nothing)
    os.close(file)
    faulthandler.enable(2)


def _prefer_as_victim() -> None:
    """If memory runs out, Linux shall take this process and not the runner."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def _resident() -> int:
    with contextlib.suppress(OSError), open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _write(path: str, result: Result) -> None:
    with open(f"{path}.part", "wb") as file:
        file.write(msgspec.msgpack.encode(result))
    os.replace(f"{path}.part", path)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
