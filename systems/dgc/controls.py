"""General partitioners on DGC's supergraph, as controls: METIS and KaHyPar (not in the paper).

Both are optional packages and run in a process of their own, with limits on time and memory: a
partitioner that gives up, or takes the process with it, becomes a reason and not a crash. METIS
cuts the supergraph with the weights that label propagation sees; KaHyPar the hypergraph of what is
sent (`refinement`), which is what it is made for.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import torch
from torch import Tensor

from dgbench.runtime.errors import UnsupportedError, unknown_key

if TYPE_CHECKING:
    from dgbench.kernels_cuda.supergraph import Supergraph
    from dgbench.systems.dgc.refinement import Hypergraph

Control = Literal["metis", "kahypar"]
PACKAGES: Final[dict[str, str]] = {"metis": "pymetis", "kahypar": "kahypar"}
TIMEOUT_S: Final = 120.0
MEMORY_BYTES: Final = 8 << 30
KAHYPAR_PINS: Final = 400_000
"""KaHyPar takes minutes for a million pins."""

_MAX_WEIGHT: Final = 2**30
"""METIS adds weights up in 32 bits."""

_GUARD: Final = """
import resource, sys, time
import numpy as np
folder, parts, slack, seed, memory = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_AS, (int(memory), int(memory)))
read = lambda name: np.load(f"{folder}/{name}.npy")
parts, seed, slack = int(parts), int(seed), float(slack)
"""
_METIS: Final = """
import pymetis
graph = pymetis.CSRAdjacency(read("first"), read("other"))
options = pymetis.Options(seed=seed, ufactor=max(1, round(1000 * slack)))
begin = time.process_time()
_, part = pymetis.part_graph(
    parts, graph, eweights=read("edge_weight"), vweights=read("load"), options=options
)
"""
_KAHYPAR: Final = """
import kahypar
load = read("load")
graph = kahypar.Hypergraph(
    len(load), len(read("net_weight")), read("first").tolist(), read("pins").tolist(), parts,
    read("net_weight").tolist(), load.tolist(),
)
context = kahypar.Context()
context.loadINIconfiguration(f"{folder}/settings.ini")
context.setK(parts)
context.setEpsilon(slack)
context.setSeed(seed)
context.suppressOutput(True)
begin = time.process_time()
kahypar.partition(graph, context)
part = [graph.blockID(v) for v in range(len(load))]
"""
_END: Final = """
np.save(f"{folder}/part.npy", np.asarray(part, dtype=np.int32))
np.save(f"{folder}/seconds.npy", np.float64(time.process_time() - begin))
"""
# Direct k-way by connectivity, with a plain local search: flows take minutes on such graphs.
# Without the packing, or the criterion for fixed vertices that are not there, the library ends its
# process.
_SETTINGS: Final = """mode=direct
objective=km1
seed=1
cmaxnet=1000
vcycles=0
p-use-sparsifier=false
p-detect-communities=false
c-type=ml_style
c-s=1
c-t=160
c-rating-score=heavy_edge
c-rating-use-communities=false
c-rating-heavy_node_penalty=no_penalty
c-rating-acceptance-criterion=best_prefer_unmatched
c-fixed-vertex-acceptance-criterion=fixed_vertex_allowed
i-mode=recursive
i-technique=multi
i-c-type=ml_style
i-c-s=1
i-c-t=150
i-c-rating-score=heavy_edge
i-c-rating-use-communities=false
i-c-rating-heavy_node_penalty=no_penalty
i-c-rating-acceptance-criterion=best_prefer_unmatched
i-algo=pool
i-runs=5
i-r-type=twoway_fm
i-r-runs=-1
i-r-fm-stop=simple
i-r-fm-stop-i=50
i-bp-algorithm=worst_fit
i-c-fixed-vertex-acceptance-criterion=fixed_vertex_allowed
r-type=kway_fm_km1
r-runs=-1
r-fm-stop=simple
r-fm-stop-i=100
"""


def cut_by(by: Control, graph: Supergraph, workers: int, **options: Any) -> Tensor:
    """The cut of `timed_cut` alone."""
    return timed_cut(by, graph, workers, **options)[0]


def timed_cut(
    by: Control,
    graph: Supergraph,
    workers: int,
    *,
    hyper: Hypergraph | None = None,
    load: Tensor | None = None,
    slack: float = 0.05,
    seed: int = 1,
    timeout_s: float = TIMEOUT_S,
    memory_bytes: int = MEMORY_BYTES,
) -> tuple[Tensor, float]:
    """Cut a supergraph into one part for each worker.

    Args:
        by: `metis` or `kahypar`.
        graph: the vertex-steps.
        workers: P.
        hyper: what is sent, for `kahypar`.
        load: int64[V], work of vertex-steps; None: one each.
        slack: how much heavier than the mean the heaviest part may be.
        seed: of the partitioner.
        timeout_s, memory_bytes: limits of its process.

    Returns:
        int32[V], and the processor seconds of the partitioner alone.

    Raises:
        UnknownKeyError: another name.
        UnsupportedError: a package that is not installed, a graph beyond its limits, or a
            partitioner that gave up; the reason says which.
    """
    if by not in PACKAGES:
        raise unknown_key("by", by, PACKAGES)
    package = PACKAGES[by]
    if importlib.util.find_spec(package) is None:
        raise UnsupportedError(f"{package} is not installed", hint=f"pip install {package}")
    count = graph.num_vertices
    if workers == 1 or count == 0:
        return torch.zeros(count, dtype=torch.int32), 0.0
    weights = torch.ones(count, dtype=torch.int64) if load is None else load
    if by == "metis":
        arrays = {
            "first": graph.csr.indptr.to(torch.int32),
            "other": graph.csr.indices,
            "edge_weight": _fitting(graph.edge_weight),
        }
    else:
        if hyper is None:
            raise UnsupportedError("kahypar needs the hypergraph of what is sent")
        arrays = _nets(hyper)
        if arrays["pins"].numel() > KAHYPAR_PINS:
            raise UnsupportedError(
                f"{arrays['pins'].numel()} pins, kahypar is given {KAHYPAR_PINS} at most"
            )
    arrays["load"] = _fitting(weights)
    script = _GUARD + (_METIS if by == "metis" else _KAHYPAR) + _END
    with tempfile.TemporaryDirectory(prefix="dgbench-control-") as folder:
        for name, array in arrays.items():
            np.save(f"{folder}/{name}.npy", array.numpy())
        Path(folder, "settings.ini").write_text(_SETTINGS)
        options = [folder, str(workers), str(slack), str(seed), str(memory_bytes)]
        try:
            done = subprocess.run(
                [sys.executable, "-W", "ignore", "-c", script, *options],
                capture_output=True,
                text=True,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise UnsupportedError(f"{package} took more than {timeout_s:.0f} s") from error
        if done.returncode:
            raise UnsupportedError(f"{package} gave up on {count} vertices: {_reason(done)}")
        part = torch.from_numpy(np.load(f"{folder}/part.npy"))
        return part, float(np.load(f"{folder}/seconds.npy"))


def _fitting(weight: Tensor) -> Tensor:
    """int32 weights >= 1 (0 stays 0) whose sum has 30 bits at most."""
    total = int(weight.sum(dtype=torch.int64))
    scaled = weight.long() // max(1, -(-total // _MAX_WEIGHT))
    return torch.where(weight > 0, scaled.clamp(min=1), 0).to(torch.int32)


def _nets(hyper: Hypergraph) -> dict[str, Tensor]:
    """Nets as KaHyPar reads them, those of two pins (edges) behind the others."""
    rows = torch.repeat_interleave(torch.arange(hyper.num_vertices), hyper.first.diff())
    order = torch.argsort(hyper.net.long(), stable=True)
    lengths = torch.bincount(hyper.net.long(), minlength=hyper.net_weight.numel())
    ends = torch.repeat_interleave(torch.arange(hyper.num_vertices), hyper.edge_first.diff())
    once = ends < hyper.other
    pairs = torch.stack([ends[once], hyper.other[once].long()], 1)
    sizes = torch.cat([lengths, torch.full((len(pairs),), 2)])
    first = torch.zeros(sizes.numel() + 1, dtype=torch.int64)
    torch.cumsum(sizes, 0, out=first[1:])
    return {
        "first": first,
        "pins": torch.cat([rows[order], pairs.flatten()]),
        "net_weight": torch.cat([hyper.net_weight, hyper.edge_weight[once]]),
    }


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    if done.returncode < 0:
        return f"ended by signal {-done.returncode}"
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return lines[-1] if lines else f"exit code {done.returncode}"
