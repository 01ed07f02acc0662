"""Every entry point of `_cpu` with wrong arguments: nothing written by a refusal, nobody killed.

The trials are made once, by a program of its own (`entry_probe`), in memory between pages that may
not be touched. Wrong types and layouts are refused; a wrong length or id is refused or harmless.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from entry_calls import arguments, entry_points
from entry_probe import NOT_IN_A_FORK, REFUSALS, TRUSTED
from entry_scenarios import matrix, normal

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
CALLED = [name for name, entry in entry_points().items() if not isinstance(entry, property)]


def test_wrong_arguments_do_no_harm(tmp_path):
    program, out = Path(__file__).with_name("entry_probe.py"), tmp_path / "trials.json"
    subprocess.run([sys.executable, str(program), str(out)], check=True, timeout=300)
    trials, harm = defaultdict(int), []
    for trial in json.loads(out.read_text()):
        trials[trial["entry"]] += 1
        if not is_fine(**trial):
            harm.append(trial)
    assert not harm
    assert not set(CALLED) - NOT_IN_A_FORK - set(trials), "without a call in entry_scenarios.py"
    names = {f"{e}.{argument.name}" for e in CALLED for argument in arguments(entry_points()[e])}
    assert names >= TRUSTED


def is_fine(entry: str, argument: str, kind: str, refused: bool, outcome: str) -> bool:
    """Return True if the outcome of a trial is one that its kind may have."""
    if outcome == "taken":
        return not refused
    if str(2**40) in kind and outcome == "ends without a word":
        return build_info()["cpu"]["sanitizer"] == "address"  # which ends where memory is short
    changed = "." in entry  # an object that may refuse the right call a second time
    return (bool(argument) or changed) and outcome in {error.__name__ for error in REFUSALS}


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


def test_a_matrix_that_was_changed_is_looked_through_again():
    csr, x = matrix(12), torch.ones(12, 2)
    spmm(csr, x)
    csr.indices[0] = 12
    with pytest.raises(InvalidInputError):
        spmm(csr, x)
