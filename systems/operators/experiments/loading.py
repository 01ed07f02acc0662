"""Opening the prepared form of a dataset against reading its source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from dgbench import datasets
from dgbench.datasets.opening import build_events, build_snapshots, choose, resolve
from dgbench.datasets.sequence import SnapshotSpec
from dgbench.datasets.sources import find_form
from dgbench.lab.experiment import Preset
from dgbench.lab.result_checks import equal
from dgbench.systems.operators.race import OURS, OperatorCase, OperatorRace

READ = "reading the source"
SMALL = {
    "smoke": ("covid19-england",),
    "quick": ("covid19-england", "pems08", "cit-hepth", "wikipedia"),
}
"""Datasets by preset, as far as they are held; larger presets take all that are."""
STEPS, WIDTH = 20, 2
"""Snapshots, where a card names no number of them, and columns of features."""


class LoadingRace(OperatorRace):
    name = "loading"
    title = "Opening a dataset the second time"
    question = "How much faster is a dataset's prepared form opened than its source is read?"
    reading = (
        "Reading ends where the container is in memory; hashing the source and writing the "
        "prepared form are left out, which favours reading. Both find their files in the page "
        "cache. Opening is the whole public call, which maps the arrays and reads none."
    )
    claims = ("operators-loading-source",)
    slow_s = 120.0
    shortest_turn_s = 0.0
    workloads = {None: ()}
    label = "{dataset}, {container}"

    def points(self, preset: Preset, device: str) -> Iterable[dict[str, Any]]:
        held = [card for card in datasets.cards().values() if find_form(card) is not None]
        for card in held:
            if card.name in SMALL.get(preset, (card.name,)):
                for container in ("snapshots",) if card.static else ("events", "snapshots"):
                    yield {
                        "operator": self.name, "dataset": card.name, "container": container,
                    }  # fmt: skip

    def case(self, params: Mapping[str, Any], preset: Preset, device: str) -> OperatorCase:
        name = params["dataset"]
        choice = choose(name)
        kept: list[Any] = []  # where writes to prepared data are watched, letting go takes long

        def keep(found: Any) -> Any:
            kept.append(found)
            return found

        if params["container"] == "events":
            wanted = datasets.open_events(name)  # prepares it, if need be
            calls = {
                OURS: lambda _: keep(events(datasets.open_events(name))),
                READ: lambda _: events(build_events(choice)),
            }
            read = calls[READ](0)
        else:
            steps = choice.card.default_snapshots or STEPS
            spec = resolve(SnapshotSpec(name, feature_dim=WIDTH, snapshots=steps), choice)
            wanted = datasets.open_snapshots(spec)
            calls = {
                OURS: lambda _: keep(snapshots(datasets.open_snapshots(spec))),
                READ: lambda _: build_snapshots(choice, spec, fresh=True).arrays,
            }
            arrays = calls[READ](0)
            read = arrays["features"], arrays["targets"], arrays["indices"]
        return OperatorCase(
            calls=calls,
            check=lambda name, _, found: equal(
                "arrays", dict(enumerate(tensors(found))), dict(enumerate(read)),
                against="a reading of the source",
            ),
            data={
                "dataset": wanted.origin.dataset, "twin": False, "scale": 1.0,
                "note": "; ".join(wanted.origin.notes),
            },
        )  # fmt: skip


def events(stream: Any) -> tuple[Tensor, ...]:
    """Ends and times of a stream."""
    return stream.src, stream.dst, stream.t


def snapshots(sequence: Any) -> tuple[Any, ...]:
    """Features, targets and matrices of a sequence; no matrix is read."""
    return sequence.features, sequence.targets, sequence.topology


def tensors(found: Any) -> tuple[Tensor, ...]:
    """Arrays of a container, whichever way it was made."""
    if isinstance(found, dict):
        return found["features"], found["targets"], found["indices"]
    *first, last = found
    if not isinstance(last, Tensor):
        matrices = {id(csr): csr for csr in last}.values()  # a static graph has one for all
        last = torch.cat([csr.indices for csr in matrices])
    return *first, last
