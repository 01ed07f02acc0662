"""ESDG on a device, all in one process: graph difference, its transfer, and whole epochs in turns.

Three tables: encoding on the host and rebuilding on the device beside what a copy of the same bytes
takes, on snapshots of the size of the paper's AMLSim; bringing them over the link, plain and as
differences; and, on smoothed twins, the transfer of an epoch and the epoch itself, plain (the
paper's Base) against differences, in turns. Whatever is rebuilt is compared with the snapshot
before it is timed, and a contender whose first loss is another is not timed.

One JSON line per measurement goes to --out, the tables to standard output.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.difference import Difference, encode, rebuild
from dgbench.runtime.errors import DgbenchError
from dgbench.runtime.meter import Meter
from dgbench.runtime.statistics import median, paired_ratio
from dgbench.runtime.transfer import open_link
from dgbench.systems.base import Trainer, get_system
from dgbench.systems.base.timeline import TimelineWorkload
from dgbench.systems.esdg.experiments.settings import BY_NAME, SMOOTHING

SCALES = {"amlsim": 1 / 4, "flickr": 1 / 4, "epinions": 1 / 4, "youtube": 1 / 8}
"""Twins of a quarter to a million entries per smoothed snapshot."""
MODELS = ("tm_gcn", "evolvegcn_o", "cd_gcn")
PAPER_DELTA = 0.055
"""Share of entries that change where differences are 4.1x smaller, the paper's best."""
DELTAS = (0.01, PAPER_DELTA, 0.2, 0.375, 1.0)
LOSS_TOLERANCE = 1e-5
WRONG = "wrong"


class Report:
    """Lines to a file and to the screen; knows when the time is over."""

    def __init__(self, path: str, device: str, seconds: float) -> None:
        self.path, self.device = path, device
        self.end = time.monotonic() + seconds
        self.wrong = 0

    def add(self, text: str, **line: Any) -> None:
        with open(self.path, "a") as file:
            file.write(json.dumps(line) + "\n")
        print(text, flush=True)

    def over(self, what: str) -> bool:
        if time.monotonic() <= self.end:
            return False
        print(f"{what}: out of time", flush=True)
        return True

    def seconds(self, work: Callable[[], object], repeats: int) -> list[float]:
        """Wall time of each call, the device included, after one that warms up."""
        work()
        found = []
        for _ in range(repeats):
            self.wait()
            start = time.perf_counter()
            work()
            self.wait()
            found.append(time.perf_counter() - start)
        return found

    def wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


def limits(report: Report, megabytes: int) -> float:
    """Bytes per second that a copy within the device reads and writes; says that of the link."""
    size = megabytes << 18
    source = torch.empty(size, device=report.device)
    target = torch.empty_like(source)
    inside = 8 * size / median(report.seconds(lambda: target.copy_(source), 10))
    report.add(f"copy on the device      {inside / 1e9:9.1f} GB/s read and written",
               what="limit", name="copy", rate=inside)  # fmt: skip
    if report.device == "cuda":
        host = torch.empty(size, pin_memory=True)
        link = 4 * size / median(report.seconds(lambda: target.copy_(host, non_blocking=True), 10))
        report.add(f"pinned host to device   {link / 1e9:9.1f} GB/s", what="limit", name="link",
                   rate=link)  # fmt: skip
    return inside


def pair(vertices: int, entries: int, delta: float) -> tuple[Csr, Csr]:
    """Two snapshots, the second differing from the first by a share of its entries."""
    random = np.random.default_rng(int(1000 * delta))
    keys = np.unique(random.integers(0, vertices * vertices, entries))
    half = round(delta * keys.size / 2)
    kept = np.delete(keys, random.choice(keys.size, half, replace=False))
    fresh = random.integers(0, vertices * vertices, half)
    return matrix(keys, vertices), matrix(np.union1d(kept, fresh), vertices)


def matrix(keys: np.ndarray, vertices: int) -> Csr:
    rows, columns = np.divmod(keys, vertices)
    indptr = np.concatenate([[0], np.bincount(rows, minlength=vertices).cumsum()])
    return Csr(torch.from_numpy(indptr), torch.from_numpy(columns.astype(np.int32)), vertices)


def rebuild_bytes(old: Csr, sent: Difference) -> int:
    """Bytes that rebuilding must read and write once: both matrices and the changes."""
    both = 4 * (old.nnz + sent.nnz) + 8 * 2 * (sent.num_rows + 1)
    return both + sum(t.numel() * t.element_size() for t in (sent.removed, sent.added))


def difference(report: Report, vertices: int, entries: int, copy_rate: float) -> None:
    """Encoding, rebuilding, and the way over the link at several shares of change."""
    torch.set_num_threads(1)
    print(f"\n{'delta':>6}{'index':>7}{'encode':>16}{'rebuild':>12}{'of copy':>9}"
          f"{'plain':>11}{'diff.':>11}{'gain':>9}{'of bytes':>10}")  # fmt: skip
    for delta in DELTAS:
        if report.over(f"difference at {delta}"):
            return
        old, new = pair(vertices, entries, delta)
        for index in ("int64", "int32"):
            _difference(report, delta, index, old, new, copy_rate)


def _difference(report, delta: float, index, old: Csr, new: Csr, copy_rate: float) -> None:
    there = Csr(old.indptr.to(report.device), old.indices.to(report.device), old.num_cols)
    sent = encode(old, new, index=index, fallback=False)
    coded = median(report.seconds(lambda: encode(old, new, index=index, fallback=False), 3))
    rate = (old.nnz + new.nnz) / coded
    moved = sent.with_tensors([t.to(report.device) for t in sent.tensors])
    back = rebuild(there, moved, check=True)
    same = torch.equal(back.indices.cpu(), new.indices)
    if not (same and torch.equal(back.indptr.cpu(), new.indptr)):
        report.wrong += 1
        report.add(f"{delta:6.3f}{index:>7}  {WRONG}: another snapshot was rebuilt",
                   what="difference", delta=delta, index=index, failed=WRONG)  # fmt: skip
        return
    took = median(report.seconds(lambda: rebuild(there, moved, check=False), 20))
    share = rebuild_bytes(old, sent) / took / copy_rate
    base = encode(None, new, index=index)
    ways = [over_link(report, there, d) for d in (base, sent)]
    gain = paired_ratio(*ways, method="sign").value
    ideal = base.nbytes / sent.nbytes
    report.add(
        f"{sent.change_share:6.3f}{index:>7}{rate / 1e6:9.0f} Mkey/s{1e3 * took:9.3f} ms"
        f"{share:8.0%} {1e3 * median(ways[0]):8.2f} ms{1e3 * median(ways[1]):8.2f} ms"
        f"{gain:8.2f}x{ideal:9.2f}x",
        what="difference", delta=sent.change_share, index=index, keys_per_s=rate,
        rebuild_s=took, copy_share=share, plain_s=ways[0], difference_s=ways[1], gain=gain,
        bytes_ratio=ideal, vertices=new.num_rows, entries=new.nnz,
    )  # fmt: skip


def over_link(report: Report, old: Csr, sent: Difference) -> list[float]:
    """Seconds from the host to a matrix on the device, from memory staged as the link wants it.

    As in the system's own delivery, indices go ahead of the values: rebuilding reads no value.
    """
    arena = report.device == "cpu"
    with open_link(report.device, Meter(device=report.device), arena=arena) as link:
        parts = [link.stage_all(part) for part in (sent.tensors[:2], sent.tensors[2:])]

        def bring() -> Csr:
            tickets = [link.send(part) for part in parts]
            removed, added = tickets[0].wait()
            there = dataclasses.replace(sent, removed=removed, added=added, values=None)
            made = rebuild(old, there, check=False)
            (values,) = tickets[1].wait()
            for ticket in tickets:
                ticket.release()
            return dataclasses.replace(made, values=values)

        return report.seconds(bring, 10)


@contextmanager
def contenders(graph: str, model: str, options: argparse.Namespace) -> Iterator[dict[str, Trainer]]:
    """Plain and difference trainers of one workload, prepared, each with a meter of its own."""
    one = BY_NAME[graph]
    task = TimelineWorkload(
        dataset=graph, source="twin", scale=SCALES[graph] * options.scale, bins=one.bins,
        snapshots=options.snapshots, model=model, smoothing=SMOOTHING[model],
        edge_life=one.edge_life, window=one.window,
    )  # fmt: skip
    system = get_system("esdg")
    found: dict[str, Trainer] = {}
    try:
        for name in ("plain", "difference"):
            switches = {"difference": name == "difference", "arena": options.device == "cpu"}
            found[name] = system.open(
                task, device=options.device, switches=switches, nb=options.blocks,
                meter=Meter(device=options.device),
            )  # fmt: skip
            found[name].prepare()
        yield found
    finally:
        for trainer in found.values():
            trainer.close()


def epochs(report: Report, options: argparse.Namespace) -> None:
    """Transfer of all blocks and whole epochs, both contenders in turns."""
    print(f"\n{'twin':10}{'model':13}{'changes':>8}{'bytes':>8}{'transfer':>11}{'':>9}{'gain':>9}"
          f"{'epoch':>12}{'':>9}{'saved':>8}")  # fmt: skip
    for graph in options.datasets:
        for model in options.models:
            if report.over(f"{graph} {model}"):
                return
            try:
                with contenders(graph, model, options) as found:
                    _race(report, graph, model, found, options)
            except (DgbenchError, RuntimeError) as error:
                report.add(f"{graph:10}{model:13}{type(error).__name__}: {str(error)[:90]}",
                           what="epoch", graph=graph, model=model, failed=str(error))  # fmt: skip
            if options.device == "cuda":
                torch.cuda.empty_cache()


def _race(report, graph, model, found: dict[str, Trainer], options) -> None:
    losses = {name: trainer.step(0) for name, trainer in found.items()}
    gap = abs(losses["difference"] - losses["plain"]) / abs(losses["plain"])
    if not gap <= LOSS_TOLERANCE:
        report.wrong += 1
        report.add(f"{graph:10}{model:13}{WRONG}: losses {losses}", what="epoch", graph=graph,
                   model=model, failed=WRONG, losses=losses)  # fmt: skip
        return
    moved: dict[str, list[float]] = {name: [] for name in found}
    whole: dict[str, list[float]] = {name: [] for name in found}
    for number in range(options.rounds):
        for name in list(found)[:: 1 if number % 2 else -1]:
            trainer = found[name]
            moved[name] += report.seconds(lambda t=trainer: _bring(t), 1)
            whole[name] += report.seconds(lambda t=trainer: t.step(0), 1)
    delivery = found["difference"].delivery
    blocks = found["difference"].blocks
    changes = [delivery.difference(t).change_share for b in blocks for t in b[1:]]
    sizes = {n: t.delivery.topology_bytes(t.blocks) for n, t in found.items()}
    gain = paired_ratio(moved["plain"], moved["difference"], method="sign")
    saved = 100 * (1 - 1 / paired_ratio(whole["plain"], whole["difference"], method="sign").value)
    ms = {n: (1e3 * median(moved[n]), 1e3 * median(whole[n])) for n in found}
    report.add(
        f"{graph:10}{model:13}{median(changes):8.3f}{sizes['plain'] / sizes['difference']:7.2f}x"
        f"{ms['plain'][0]:8.2f} ms{ms['difference'][0]:6.2f} ms{gain.value:8.2f}x"
        f"{ms['plain'][1]:9.2f} ms{ms['difference'][1]:6.2f} ms{saved:6.1f} %",
        what="epoch", graph=graph, model=model, changes=changes, bytes=sizes, transfer_s=moved,
        epoch_s=whole, gain=gain.value, low=gain.low, high=gain.high, saved_percent=saved,
        snapshots=options.snapshots, blocks=len(blocks), loss_gap=gap,
        nodes=found["plain"].data.num_nodes, planned_bytes=found["plain"].planned_bytes(),
    )  # fmt: skip


def _bring(trainer: Trainer) -> None:
    for block in trainer.blocks:
        with trainer.delivery.load(block):
            pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, help="file for the rows, one JSON a line")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--datasets", nargs="*", default=list(SCALES), choices=SCALES)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=MODELS)
    parser.add_argument("--snapshots", type=int, default=33, help="steps and the target")
    parser.add_argument("--blocks", type=int, default=2)
    parser.add_argument("--scale", type=float, default=1.0, help="of the twins, times their own")
    parser.add_argument("--entries", type=int, default=5_200_000, help="of a made snapshot")
    parser.add_argument("--vertices", type=int, default=1_000_000)
    parser.add_argument("--megabytes", type=int, default=1024, help="of the copies for the limits")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=150, help="begin nothing after this long")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("torch sees no CUDA device; nothing to measure")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    report = Report(options.out, options.device, options.seconds)
    threads = torch.get_num_threads()
    copy_rate = limits(report, options.megabytes)
    difference(report, options.vertices, options.entries, copy_rate)
    torch.set_num_threads(threads)
    epochs(report, options)
    sys.exit(1 if report.wrong else 0)


if __name__ == "__main__":
    main()
