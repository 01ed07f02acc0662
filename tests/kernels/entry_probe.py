"""Calls every entry point of `_cpu` with wrong arguments and says what became of each.

A program of its own, `python entry_probe.py OUT`: each call is tried in a fork, so that one that
crashes ends its fork only, and forks are sound here because nothing ever starts a thread. Arrays
lie against a page that may not be touched, so reading or writing one element outside kills.
"""

from __future__ import annotations

import ctypes
import gc
import json
import mmap
import os
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from entry_calls import Argument, Call, arguments, arrays_of, entry_points, seen
from entry_scenarios import SCENARIOS

from dgbench.kernels_cuda.build_info import build_info

FEW = 12  # vertices
REFUSALS = (TypeError, ValueError, IndexError, MemoryError, RuntimeError)
SECONDS = 2
PAGE: Final = mmap.PAGESIZE
LIBC: Final = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
LIBC.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

MATRIX: Final = "over_indptr over_indices ex_indptr ex_entries order"
READ_BEFORE: Final = {
    # A matrix is looked through once when its product is prepared, not at every product.
    "FrameProduct.add": MATRIX,
    "FrameProductDouble.add": MATRIX,
    "KeptProduct.__init__": "indptr indices order",
    "aggregate_parts": MATRIX,
    "aggregate_parts_scatter": "over_indptr over_indices ex_indptr ex_entries",
    "attend_rows_backward": "indptr indices place receivers receivers_ptr",
    "attend_rows_forward": "indptr indices",
    "spmm": "indptr indices order",
    # propagate_labels looks through a matrix before its first sweep.
    "label_sweep": "indices",
    # Columns were read in ascending order, and counted with the same cap, before a fill.
    "split": "indices slice_cap",
    "unite": "indices",
}
TRUSTED: Final = {f"{entry}.{name}" for entry, text in READ_BEFORE.items() for name in text.split()}
"""Contents that a direct call takes on trust: public functions refuse them before the first call
(`test_entry_points.test_public_functions_refuse_a_broken_matrix`). Lengths are checked here too."""
AMOUNTS: Final = frozenset({"sample_subgraphs.draws", "time_items.repeats"})
"""Numbers for which a huge one is only long work."""
HELD: Final = frozenset({"EdgeSnapshots.fill.indptr"})
"""Arrays that have to be the very ones of an earlier call, so no copies in guarded memory."""
NOT_IN_A_FORK: Final = frozenset({"CopyThread.wait"})
"""Entry points that need a thread that a fork does not have; tests/runtime tries them."""


def guarded(value: Any, *, after: bool) -> Any:
    """A copy of an array, or of those in a list, with a forbidden page behind or before it."""
    if isinstance(value, list):
        return [guarded(one, after=after) for one in value]
    if not isinstance(value, np.ndarray) or not (
        value.flags.c_contiguous and value.flags.writeable
    ):
        return value
    size = (-(-max(1, value.nbytes) // PAGE) + 2) * PAGE
    base = LIBC.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | 0x20, -1, 0)
    assert base not in (None, ctypes.c_void_p(-1).value)
    for page in (base, base + size - PAGE):
        assert LIBC.mprotect(page, PAGE, 0) == 0
    start = base + size - PAGE - value.nbytes if after else base + PAGE
    memory = (ctypes.c_char * value.nbytes).from_address(start)
    out = np.frombuffer(memory, dtype=value.dtype).reshape(value.shape)
    out[...] = value
    return out


Trial = tuple[str, str, Any, bool, bool]  # with the name of its argument
Wrong = tuple[str, Any, bool, bool]
"""Kind of a wrong value, the value, True if it has to be refused, the side of the forbidden page.

The others may be taken as long as nothing is touched that is not given."""


def wrong_values(argument: Argument, value: Any) -> Iterator[Wrong]:
    """Wrong values of an argument whose right value is `value`."""
    numbers: tuple[Any, ...] = ()
    if isinstance(value, np.ndarray):
        yield from wrong_arrays(argument, value)
    elif isinstance(value, list) and value and isinstance(value[0], np.ndarray):
        yield "none", None, True, True
        yield "fewer", value[:-1], False, True
        for kind, one, refused, after in wrong_arrays(argument, value[0]):
            yield kind, [one, *value[1:]], refused, after
    elif isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.bool_)):
        numbers = (-1, 0, 2**40)
        yield "2^64", 2**64, True, True
    elif isinstance(value, (float, np.floating)):
        numbers = (float("nan"), float("inf"), -1.0, -1e300)
    elif isinstance(value, str):
        yield "unknown", "nonsense", True, True
    elif isinstance(value, (list, tuple)):
        numbers = ([], [-1], [2**40] * len(value))
        yield "text", ["1"], True, True
    for number in numbers:
        yield str(number), number, False, True


def wrong_arrays(argument: Argument, array: np.ndarray) -> Iterator[Wrong]:
    """Wrong types, layouts, lengths and ids in place of an array."""
    yield "dtype", np.ones(array.shape, np.float16), True, True
    yield "none", None, not argument.optional, True
    yield "meta", torch.from_numpy(array).to("meta"), True, True
    if array.size > 1:
        apart = np.empty((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)[..., ::2]
        apart[...] = array
        yield "stride", apart, argument.dense, True
        yield "backwards", array[::-1], argument.dense and array.shape[0] > 1, True
    if argument.writable:
        fixed = array.copy()
        fixed.setflags(write=False)
        yield "read-only", fixed, True, True
    for axis in range(array.ndim):
        if array.shape[axis]:
            yield f"shorter {axis}", np.delete(array, -1, axis), False, True
        zeros = np.zeros([1 if a == axis else n for a, n in enumerate(array.shape)], array.dtype)
        yield f"longer {axis}", np.concatenate([array, zeros], axis), False, True
    yield "empty", array[:0], False, True
    if array.dtype.kind in "iu" and array.dtype.itemsize > 1 and array.size:
        most = min(2**40, int(np.iinfo(array.dtype).max))
        for number in (-1 if array.dtype.kind == "i" else most, int(array.max()) + 1, most):
            changed = array.copy()
            changed.reshape(-1)[-1 if number >= 0 else 0] = min(number, np.iinfo(array.dtype).max)
            yield f"holds {number}", changed, False, number >= 0


class Probe:
    """Tries wrong arguments on the first call of each entry point; `report` has their outcomes."""

    def __init__(self) -> None:
        self.report: list[dict[str, Any]] = []
        self._entries = {name: arguments(value) for name, value in entry_points().items()}

    def __call__(self, call: Call) -> Any:
        if call.entry in self._entries and call.entry not in NOT_IN_A_FORK:
            trials = list(self._trials(call, self._entries.pop(call.entry)))
            first = 0
            while first < len(trials):
                outcomes = in_fork(lambda begin=first: attempt(call, trials[begin:]))
                for trial, outcome in zip(trials[first:], outcomes, strict=False):
                    line = {"entry": call.entry, "argument": trial[0], "kind": trial[1]}
                    self.report.append({**line, "refused": trial[3], "outcome": outcome})
                first += len(outcomes)
        return call.run()

    def _trials(self, call: Call, known: list[Argument]) -> Iterator[Trial]:
        for after in (True, False):  # the right call touches nothing but its arrays
            yield "", "right", None, False, after
        for argument, value in zip(known, call.given, strict=True):
            name = f"{call.entry}.{argument.name}"
            for kind, wrong, *rest in wrong_values(argument, value):
                content = kind.startswith("holds") or not isinstance(value, (np.ndarray, list))
                if not (content and name in TRUSTED) and not (
                    kind == str(2**40) and name in AMOUNTS
                ):
                    yield (argument.name, kind, wrong, *rest)


def attempt(call: Call, trials: list[Trial]) -> Iterator[str]:
    """Outcome after outcome; what is taken may change the object that the next trials meet."""

    def right(after: bool) -> list[Any]:
        return [
            value if f"{call.entry}.{name}" in HELD else guarded(value, after=after)
            for name, value in zip(call.names, call.given, strict=True)
        ]

    sides = {after: right(after) for after in (True, False)}
    for argument, _, wrong, _, after in trials:
        given = list(sides[after])
        if argument:
            given[call.names.index(argument)] = guarded(wrong, after=after)
        before = [array.tobytes() for array in arrays_of(given)]
        signal.alarm(SECONDS)
        try:
            call.run(given)
        except REFUSALS as error:
            same = before == [array.tobytes() for array in arrays_of(given)]
            yield type(error).__name__ if same else f"wrote, then {type(error).__name__}"
        except BaseException as error:
            yield f"raised {type(error).__name__}: {error}"
        else:
            yield "taken"
            sides[after] = right(after)


def in_fork(outcomes: Any) -> list[str]:
    """Collect an iterator's outcomes in a fork; the last one says so if the fork died."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        limit = 4 << 30
        if not build_info()["cpu"]["sanitizer"]:  # which takes far more addresses than memory
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        try:
            for outcome in outcomes():
                os.write(writer, (outcome.replace("\n", " ") + "\n").encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as lines:
        collected = lines.read().splitlines()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        collected.append(
            "hangs" if number == signal.SIGALRM else f"dies of {signal.strsignal(number)}"
        )
    return collected or ["ends without a word"]


def main() -> None:
    torch.set_num_threads(1)
    gc.freeze()
    gc.disable()
    probe = Probe()
    with seen(probe):
        for run in SCENARIOS.values():
            run(FEW)
    Path(sys.argv[1]).write_text(json.dumps(probe.report))


if __name__ == "__main__":
    main()
