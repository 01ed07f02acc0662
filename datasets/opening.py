"""Opening datasets by name: real data where it is held, else the twin, always prepared."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import torch

from dgbench import __version__
from dgbench.datasets import store
from dgbench.datasets.catalogue import DatasetCard, DatasetVariant, card
from dgbench.datasets.checks import compare, count_events
from dgbench.datasets.events import EventStream
from dgbench.datasets.origin import Origin
from dgbench.datasets.readers import RawEvents, Signals, named, read
from dgbench.datasets.sequence import (
    PackedTopology,
    SnapshotSequence,
    SnapshotSpec,
    check_scale,
)
from dgbench.datasets.sources.locate import LocalVariant, find_form, missing
from dgbench.runtime.errors import DataError, InvalidInputError, UnsupportedError
from dgbench.runtime.touched import note_opened


@dataclass(frozen=True, slots=True)
class Choice:
    """Form of a dataset selected by a name and a source: held files, or the twin (`held` is None).

    Attributes:
        card: the dataset.
        held: the files to read, or None for the twin.
        key: identity of the content, hashed into the name of the prepared form.
        scale, seed: of the twin.
    """

    card: DatasetCard
    held: LocalVariant | None
    key: list[Any]
    scale: float = 1.0
    seed: int = 0


def open_events(name: str, source: str = "auto", scale: float = 1.0, seed: int = 1) -> EventStream:
    """The events of a dataset, from the prepared form.

    Args:
        name: name or alias of a card.
        source: `real`, `twin`, or `auto` (real where it is held, else the twin).
        scale, seed: size factor and seed of a twin; they change nothing about real data.

    Raises:
        UnknownKeyError: no card has that name.
        MissingDataError: the data is not here and a twin was not asked for or does not exist.
        DataError: a file is not what its card says.
        UnsupportedError: the dataset has one topology without times.
    """
    choice = choose(name, source, scale, seed)
    if choice.card.static:
        raise UnsupportedError(
            f"'{choice.card.name}' has one topology that never changes, so it has no events",
            hint="open it with open_snapshots",
        )
    stream = _prepared_events(choice)
    _note(stream.origin, choice)
    return stream


def open_snapshots(spec: SnapshotSpec) -> SnapshotSequence:
    """The snapshots of a dataset as a spec asks for them, from the prepared form.

    Raises as `open_events`, and InvalidInputError for a spec that the data cannot meet.
    """
    spec.check()
    choice = choose(spec.dataset, spec.source, spec.scale, spec.seed)
    spec = resolve(spec, choice)
    wanted = msgspec.structs.asdict(spec)
    if spec.features != "random" and choice.held is not None:
        wanted["seed"] = 0  # nothing about it is drawn
    where = store.slot(choice.card.name, ["snapshots", choice.key, wanted])
    sequence = _sequence(store.obtain(where, lambda: build_snapshots(choice, spec)), spec)
    _note(sequence.origin, choice)
    return sequence


def _note(origin: Origin, choice: Choice) -> None:
    bundled = choice.held is not None and choice.held.bundled
    note_opened(origin.dataset, origin.kind, origin.scale, bundled=bundled)


def choose(name: str, source: str = "auto", scale: float = 1.0, seed: int = 1) -> Choice:
    """Decide between real data and twin; raises MissingDataError with the ways out."""
    if source not in ("auto", "real", "twin"):
        raise InvalidInputError(f"source is '{source}'; allowed: auto, real, twin")
    found = card(name)
    check_scale(scale)
    if source != "twin":
        held = find_form(found)
        if held is not None:
            return Choice(found, held, ["real", held.hashes(), _card_key(found, held.form)])
    from dgbench.datasets import twins

    exists = twins.supports(found.name)
    if source == "real" or not exists:
        if source == "twin":
            raise UnsupportedError(
                f"there is no synthetic twin of '{found.name}'",
                hint=f"twins exist of: {', '.join(twins.names())}",
            )
        raise missing(found, exists)
    from dgbench.datasets.twins.params import params

    row = msgspec.json.encode(params(found.name)).decode()
    key = ["twin", __version__, row, float(scale), int(seed)]
    return Choice(found, None, key, float(scale), int(seed))


_CARD_KEYS: dict[tuple[str, str], tuple[DatasetVariant, str]] = {}


def _card_key(found: DatasetCard, form: DatasetVariant) -> str:
    """Hash of what the card says that shapes the content: how to read, check and describe it."""
    known = _CARD_KEYS.get((found.name, form.name))
    if known is None or known[0] is not form:
        text = msgspec.json.encode([form, found.published])
        known = (form, hashlib.sha256(text).hexdigest())
        _CARD_KEYS[found.name, form.name] = known
    return known[1]


def resolve(spec: SnapshotSpec, choice: Choice) -> SnapshotSpec:
    """The spec with the canonical name, T filled in and the source that was chosen."""
    steps = spec.snapshots or choice.card.default_snapshots
    if steps is None and choice.card.kind == "events":
        raise InvalidInputError(
            f"snapshots is not given, and the card of '{choice.card.name}' has no default"
        )
    real = choice.held is not None
    return msgspec.structs.replace(
        spec,
        dataset=choice.card.name,
        source="real" if real else "twin",
        scale=1.0 if real else spec.scale,
        snapshots=steps,
    )


def build_events(choice: Choice) -> EventStream:
    """Read or generate the events, without the prepared form."""
    if choice.held is None:
        from dgbench.datasets import twins

        return twins.generate(choice.card.name, scale=choice.scale, seed=choice.seed)
    return events_of(choice, read(choice.held.form, choice.held.paths))


def events_of(choice: Choice, raw: RawEvents | Signals) -> EventStream:
    """The stream of what was read from held files, compared with their card."""
    if isinstance(raw, Signals):
        raw = _as_events(raw)
    if choice.held is None:
        raise InvalidInputError("a twin is generated, not read")
    form = choice.held.form
    try:
        stream = EventStream.build(
            raw.src,
            raw.dst,
            raw.t,
            num_nodes=raw.num_nodes,
            num_src=raw.num_src,
            weight=raw.weight,
            edge_feat=raw.edge_feat,
            node_feat=raw.node_feat,
            label=raw.label,
            node_label=raw.node_label,
            sort=not form.reader.sorted,
        )
    except DataError as error:
        raise named(error, choice.held.paths) from None
    counts = count_events(stream, form.counts)
    if choice.card.kind == "signals":
        counts["snapshots"] = form.counts.snapshots or 0
    notes = (*compare(choice.card, form, counts), *raw.notes)
    kind = "subset" if form.subset else "real"
    return replace(stream, origin=Origin(choice.card.name, kind, notes=notes))


def build_snapshots(choice: Choice, spec: SnapshotSpec, *, fresh: bool = False) -> store.Pack:
    """Make the snapshots of a resolved spec, without the prepared form of the result.

    Args:
        choice, spec: what was chosen and asked for.
        fresh: read the events from their source too, instead of from their prepared form.
    """
    from dgbench.datasets import shaping

    if choice.card.kind == "signals" and choice.held is not None:
        signals = read(choice.held.form, choice.held.paths)
        try:
            return shaping.from_signals(choice, signals, spec)
        except DataError as error:
            raise named(error, choice.held.paths) from None
    stream = build_events(choice) if fresh else _prepared_events(choice)
    return shaping.from_events(stream, spec)


def _prepared_events(choice: Choice) -> EventStream:
    where = store.slot(choice.card.name, ["events", choice.key])
    return _stream(store.obtain(where, lambda: _pack_events(build_events(choice))))


def _as_events(signals: Signals) -> RawEvents:
    order = signals.step.argsort(kind="stable")
    return RawEvents(
        src=signals.src[order],
        dst=signals.dst[order],
        t=signals.step[order].astype(float),
        num_nodes=signals.num_nodes,
        weight=None if signals.weight is None else signals.weight[order],
    )


_OPTIONAL = ("weight", "edge_feat", "node_feat", "label", "node_label")


def _pack_events(stream: EventStream) -> store.Pack:
    arrays = {"src": stream.src, "dst": stream.dst, "t": stream.t}
    eid = torch.arange(len(stream)) if stream.eid is None else stream.eid
    arrays["eid"] = eid
    arrays |= {k: v for k in _OPTIONAL if (v := getattr(stream, k)) is not None}
    fields = {
        "num_nodes": stream.num_nodes,
        "num_src": stream.num_src,
        "origin": origin_fields(stream.origin),
    }
    return store.Pack(fields, arrays)


def _stream(pack: store.Pack) -> EventStream:
    return EventStream(
        num_nodes=pack.fields["num_nodes"],
        num_src=pack.fields["num_src"],
        origin=origin_of(pack.fields["origin"]),
        **pack.arrays,
    )


def _sequence(pack: store.Pack, spec: SnapshotSpec) -> SnapshotSequence:
    fields, arrays = pack.fields, pack.arrays
    topology = PackedTopology(
        arrays["indptr"],
        arrays["indices"],
        fields["starts"],
        arrays.get("values"),
        fields["steps"],
    )
    counts = [b - a for a, b in zip(fields["starts"], fields["starts"][1:], strict=False)]
    if len(counts) == 1:
        counts *= fields["steps"]
    return SnapshotSequence(
        topology=topology,
        features=arrays["features"],
        targets=arrays["targets"],
        num_nodes=fields["num_nodes"],
        origin=origin_of(fields["origin"]),
        spec=spec,
        edge_counts=tuple(counts),
    )


def origin_fields(origin: Origin) -> list[Any]:
    """An origin as JSON."""
    return [origin.dataset, origin.kind, origin.scale, origin.seed, list(origin.notes)]


def origin_of(fields: list[Any]) -> Origin:
    """The inverse of `origin_fields`."""
    return Origin(*fields[:4], notes=tuple(fields[4]))
