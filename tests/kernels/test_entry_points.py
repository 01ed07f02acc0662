"""Every entry point of `_cpu` with wrong arguments: nothing written by a refusal, nobody killed.

Run as a program, `python test_entry_points.py`, this calls each entry point with wrong values in a
fork, in memory between pages that may not be touched, and prints what did harm. Wrong types and
layouts are refused; a wrong length or id is refused or harmless.
"""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pytest
import torch
from entry_calls import Argument, Call, arguments, arrays_of, entry_points, seen
from entry_scenarios import SCENARIOS, matrix, normal

from dgbench.kernels_cuda.aggregate import aggregate_parts, aggregate_parts_scatter, spmm
from dgbench.kernels_cuda.attention import attend_rows
from dgbench.kernels_cuda.build_info import build_info
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.difference import count_changes, encode
from dgbench.kernels_cuda.label_propagation import propagate_labels
from dgbench.kernels_cuda.overlap import PartTopology, UnionTopology, trace_edges
from dgbench.kernels_cuda.slices import slice_csr
from dgbench.kernels_cuda.supergraph import build_supergraph
from dgbench.kernels_cuda.transpose import transpose
from dgbench.runtime.errors import InvalidInputError

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="pages are guarded through mmap"),
    pytest.mark.skipif(
        build_info()["cpu"]["sanitizer"] == "thread",
        reason="ThreadSanitizer follows no thread that a fork starts; wrong arguments are of one",
    ),
]
REFUSALS: Final = (TypeError, ValueError, IndexError, MemoryError, RuntimeError)
NOT_IN_A_FORK: Final = frozenset({"CopyThread.wait"})
"""Entry points that need a thread that a fork does not have; tests/runtime tries them."""
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
KEPT: Final = frozenset({"EdgeSnapshots.fill.indptr"})
"""Arrays that have to be the very ones of an earlier call, so no copies in guarded memory."""


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


Wrong = tuple[str, Any, bool, bool]
"""Kind of a wrong value, the value, True if it has to be refused, side of the forbidden page."""


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
    elif isinstance(value, (float, np.floating)):
        numbers = (float("nan"), float("inf"), -1.0, -1e300)
    elif isinstance(value, str):
        yield "unknown", "nonsense", True, True
    elif isinstance(value, (list, tuple)):
        numbers = ([], [-1], [2**40] * len(value))
    for number in numbers:
        yield str(number), number, False, True


def wrong_arrays(argument: Argument, array: np.ndarray) -> Iterator[Wrong]:
    """Wrong types, layouts, lengths and ids in place of an array."""
    yield "dtype", np.ones(array.shape, np.float16), True, True
    yield "none", None, not argument.optional, True
    if array.size > 1:
        apart = np.empty((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)[..., ::2]
        apart[...] = array
        yield "stride", apart, argument.dense, True
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


def harm_of(call: Call, known: list[Argument]) -> Iterator[str]:
    """Lines about wrong values that were taken, or refused after something had been written."""

    def right(after: bool) -> list[Any]:
        return [
            value if f"{call.entry}.{name}" in KEPT else guarded(value, after=after)
            for name, value in zip(call.names, call.given, strict=True)
        ]

    short_of_memory = build_info()["cpu"]["sanitizer"] == "address"  # which then ends the process
    sides = {after: right(after) for after in (True, False)}
    call.run(right(True))  # touches nothing but its arrays
    if call.owner is None:  # an object may refuse the same a second time
        call.run(right(False))
    for place, (argument, value) in enumerate(zip(known, call.given, strict=True)):
        name = f"{call.entry}.{argument.name}"
        for kind, wrong, refused, after in wrong_values(argument, value):
            content = kind.startswith("holds") or not isinstance(value, (np.ndarray, list))
            huge = str(2**40) in kind and (name in AMOUNTS or short_of_memory)
            if huge or (content and name in TRUSTED):
                continue
            given = list(sides[after])
            given[place] = guarded(wrong, after=after)
            before = [array.tobytes() for array in arrays_of(given)]
            print(f"{name}: {kind}", file=sys.stderr, flush=True)  # the last one before an end
            signal.alarm(5)  # ends what hangs
            try:
                call.run(given)
            except REFUSALS as error:
                if before != [array.tobytes() for array in arrays_of(given)]:
                    yield f"{name}: {kind}: wrote, then {type(error).__name__}"
            else:
                sides[after] = right(after)
                if refused:
                    yield f"{name}: {kind}: taken"


def main() -> None:
    """Try the first call of each entry point in a fork, and print what did harm."""
    torch.set_num_threads(1)
    gc.freeze()  # so that a fork's collector touches no page of ours
    gc.disable()
    left = {n: arguments(e) for n, e in entry_points().items() if not isinstance(e, property)}
    names = {f"{entry}.{argument.name}" for entry, known in left.items() for argument in known}
    print(*TRUSTED - names, end="")

    def watch(call: Call) -> Any:
        known = left.pop(call.entry, None)
        if known is not None and call.entry not in NOT_IN_A_FORK:
            child = os.fork()
            if child == 0:
                if not build_info()["cpu"]["sanitizer"]:  # takes far more addresses than memory
                    resource.setrlimit(resource.RLIMIT_DATA, (4 << 30, 4 << 30))
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
                try:
                    for line in harm_of(call, known):
                        os.write(1, f"{line}\n".encode())
                finally:
                    os._exit(sys.exc_info()[0] is not None)
            status = os.waitpid(child, 0)[1]
            if status != 0:
                os.write(1, f"{call.entry} ends with status {status}\n".encode())
        return call.run()

    with seen(watch):
        for run in SCENARIOS.values():
            run(12)
    for entry in left:
        print(f"{entry} has no call in entry_scenarios.py")


def test_wrong_arguments_do_no_harm():
    program = [sys.executable, __file__]
    done = subprocess.run(program, capture_output=True, text=True, timeout=300, check=False)
    trials = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (0, ""), trials[-3:]
    assert len(trials) > 5000


def broken_matrices() -> list[Csr]:
    """Malformed matrices that a compiled loop must never read."""
    good, out = matrix(12), []
    for array, place, value in (
        ("indices", 3, -1), ("indices", -1, 12), ("indices", 0, 2**31 - 1), ("indptr", 0, -1),
        ("indptr", 5, 2**40), ("indptr", -1, good.nnz + 1),
    ):  # fmt: skip
        csr = Csr(good.indptr.clone(), good.indices.clone(), 12)
        getattr(csr, array)[place] = value
        out.append(csr)
    return [*out, Csr(good.indptr, good.indices[:-1].clone(), 12)]


def parts(csr: Csr) -> PartTopology:
    return PartTopology(csr, [matrix(12, seed) for seed in (1, 2)])


PUBLIC: dict[str, Callable[[Csr], Any]] = {
    "spmm": lambda csr: spmm(csr, normal(1, 12, 3).detach()),
    "aggregate_parts": lambda csr: aggregate_parts(parts(csr), normal(1, 12, 2, 3).detach()),
    "aggregate_parts_scatter": lambda csr: aggregate_parts_scatter(
        parts(csr), normal(1, 12, 2, 3).detach()
    ),
    "attend_rows": lambda csr: attend_rows(
        csr.indptr, csr.indices, normal(1, 12, 2, 4), normal(2, 12, 2), normal(3, 12, 2)
    ),
    "propagate_labels": lambda csr: propagate_labels(csr, cap=3),
    "PartTopology.build": lambda csr: PartTopology.build([matrix(12), csr]),
    "UnionTopology.build": lambda csr: UnionTopology.build([csr, matrix(12)]),
    "slice_csr": slice_csr,
    "transpose": transpose,
    "trace_edges": lambda csr: trace_edges([csr, matrix(12)]),
    "build_supergraph": lambda csr: build_supergraph([matrix(12), csr]),
    "encode": lambda csr: encode(matrix(12), csr),
    "count_changes": lambda csr: count_changes(csr, matrix(12)),
}


@pytest.mark.parametrize("name", PUBLIC)
def test_public_functions_refuse_a_broken_matrix(name):
    PUBLIC[name](matrix(12))
    for csr in broken_matrices():
        with pytest.raises(InvalidInputError):
            PUBLIC[name](csr)


if __name__ == "__main__":
    main()
