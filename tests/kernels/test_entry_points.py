"""Every entry point of `_cpu` with every wrong argument: refused, nothing written, nobody killed.

The trials are made once, by a program of its own (`entry_probe`); each test looks at those of one
entry point. Arrays lie against pages that may not be touched, so a step too far is a red test.
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
from entry_rules import ANY_LENGTH, ANY_NUMBER, LOOKED_THROUGH, NOT_IN_A_FORK, names
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

REFUSED = {"TypeError", "ValueError", "IndexError", "MemoryError", "RuntimeError"}
CALLED = [name for name, entry in entry_points().items() if not isinstance(entry, property)]


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """Every trial by entry point."""
    out = tmp_path_factory.mktemp("probe") / "trials.json"
    program = Path(__file__).with_name("entry_probe.py")
    subprocess.run([sys.executable, str(program), str(out)], check=True, timeout=300)
    found = defaultdict(list)
    for trial in json.loads(out.read_text()):
        found[trial["entry"]].append(trial)
    return found


@pytest.mark.parametrize("entry", sorted(set(CALLED) - NOT_IN_A_FORK))
def test_wrong_arguments_are_refused_and_nothing_is_written(entry, trials):
    assert trials[entry], f"no scenario in entry_scenarios.py calls {entry}"
    wrong = [
        f"{trial['argument'] or 'right call'}: {trial['kind']}: {trial['outcome']}"
        for trial in trials[entry]
        if not is_fine(trial)
    ]
    assert not wrong, "\n".join(wrong)


def is_fine(trial: dict[str, Any]) -> bool:
    """Return True if the outcome of a trial is one that its kind may have."""
    kind, outcome = trial["kind"], trial["outcome"]
    if kind == "right":
        return outcome == "taken"
    if outcome in REFUSED:
        return True
    if kind.startswith(("2^40", str(2**40))) and outcome == "ends without a word":
        return build_info()["cpu"]["sanitizer"] == "address"  # which ends where memory is short
    return outcome == "taken" and (not trial["refused"] or is_allowed(trial))


def is_allowed(trial: dict[str, Any]) -> bool:
    name, kind = f"{trial['entry']}.{trial['argument']}", trial["kind"]
    if kind.split()[0] in ("shorter", "longer", "empty", "fewer", "more"):
        return name in names(ANY_LENGTH)
    return " at " in kind and name in names(ANY_NUMBER)


def test_every_exception_to_the_rule_is_needed(trials):
    taken = defaultdict(set)
    for trial in (one for some in trials.values() for one in some):
        if trial["refused"] and trial["outcome"] == "taken":
            content = " at " in trial["kind"]
            taken[content].add(f"{trial['entry']}.{trial['argument']}")
    assert names(ANY_LENGTH) == taken[False]
    assert names(ANY_NUMBER) == taken[True]


def test_names_of_exceptions_are_those_of_arguments():
    known = {
        f"{name}.{argument.name}" for name in CALLED for argument in arguments(entry_points()[name])
    }
    assert names(LOOKED_THROUGH) <= known
    assert set(CALLED) >= NOT_IN_A_FORK


def test_trials_are_many_and_of_every_kind(trials):
    kinds = {one["kind"].split(" at ")[0] for some in trials.values() for one in some}
    assert {"dtype", "stride", "none", "dimensions", "meta", "cuda", "read-only", "empty"} <= kinds
    assert {"shorter 0", "longer 0", "-1", "n", "2^40"} <= kinds
    assert sum(map(len, trials.values())) > 10_000


def broken_matrices() -> dict[str, Csr]:
    """Malformed matrices that a compiled loop must never read."""
    good = matrix(12)
    out = {}
    for name, change in {
        "column -1": lambda indptr, indices: indices.__setitem__(3, -1),
        "column n": lambda indptr, indices: indices.__setitem__(-1, 12),
        "column 2^31 - 1": lambda indptr, indices: indices.__setitem__(0, 2**31 - 1),
        "offset -1": lambda indptr, indices: indptr.__setitem__(0, -1),
        "offset beyond": lambda indptr, indices: indptr.__setitem__(5, 2**40),
        "offsets end elsewhere": lambda indptr, indices: indptr.__setitem__(-1, indptr[-1] + 1),
    }.items():
        indptr, indices = good.indptr.clone(), good.indices.clone()
        change(indptr, indices)
        out[name] = Csr(indptr, indices, 12)
    out["fewer entries"] = Csr(good.indptr, good.indices[:-1].clone(), 12)
    return out


def parts(csr: Csr, call: Callable[..., Any]) -> None:
    call(PartTopology(csr, [matrix(12, seed) for seed in (1, 2)]), normal(1, 12, 2, 3).detach())


PUBLIC: dict[str, Callable[[Csr], Any]] = {
    "spmm": lambda csr: spmm(csr, normal(1, 12, 3).detach()),
    "aggregate_parts": lambda csr: parts(csr, aggregate_parts),
    "aggregate_parts_scatter": lambda csr: parts(csr, aggregate_parts_scatter),
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
    for what, csr in broken_matrices().items():
        with pytest.raises(InvalidInputError):
            print(f"a matrix with {what}:", PUBLIC[name](csr))


def test_a_matrix_that_was_changed_is_looked_through_again():
    csr, x = matrix(12), torch.ones(12, 2)
    spmm(csr, x)
    csr.indices[0] = 12
    with pytest.raises(InvalidInputError, match="column"):
        spmm(csr, x)
