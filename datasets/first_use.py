"""Preparation of a run's datasets: find the source of each, and fetch missing files in advance."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from dgbench.datasets.catalogue import DatasetCard, DatasetVariant, card
from dgbench.datasets.sources.download import Progress, downloadable, fetch, offline
from dgbench.datasets.sources.locate import LocalVariant, find_form
from dgbench.datasets.sources.transfer import (
    TransferError,
    TransferLimits,
    host_of,
    unreachable,
)
from dgbench.runtime.errors import DataError, DgbenchError

FETCH_BYTES: Final = 200_000_000
"""Largest file that is fetched without being asked for; `dgbench data fetch` has no such limit."""
FETCH_S: Final = 120.0
"""Seconds for one file."""
CONNECT_S: Final = 3.0
"""Seconds in which a publisher's host must answer; all are tried at once."""
STALL_S: Final = 10.0
"""Seconds without a byte."""

Source = Literal["DGBENCH_DATA", "file", "downloaded", "fetched", "bundled", "twin", "missing"]


class DatasetSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run takes a dataset from.

    Attributes:
        name: canonical name of the card.
        source: `DGBENCH_DATA`, a `file` that its card names, `downloaded` before, `fetched` just
            now, `bundled` with dgbench, the synthetic `twin`, or `missing` where there is no twin.
        reason: why it is not the real data, in words that datasets with the same cause share.
        hosts: who did not answer, where that is the reason.
    """

    name: str
    source: Source
    reason: str = ""
    hosts: tuple[str, ...] = ()

    @property
    def why(self) -> str:
        """The reason with who did not answer."""
        return f"{', '.join(self.hosts)}: {self.reason}" if self.hosts else self.reason

    @property
    def real(self) -> bool:
        """True if it is the publisher's data or a true part of it."""
        return self.source not in ("twin", "missing")


def settle_sources(
    names: Iterable[str], *, fetching: bool = True, progress: Progress | None = None
) -> list[DatasetSource]:
    """Decide where each dataset comes from; fetch first what is not here and has a checksum.

    Never raises for a download that fails: the dataset then has its twin, or is missing.

    Args:
        names: names or aliases of cards.
        fetching: False forbids downloads, as `DGBENCH_OFFLINE` does.
        progress: told about bytes as they come.

    Raises:
        UnknownKeyError: no card has that name.
        InvalidInputError: `DGBENCH_DATA` is not a folder.
    """
    cards = {(found := card(name)).name: found for name in names}
    held = {name: find_form(one) for name, one in cards.items()}
    wanted = {
        name: form
        for name, one in cards.items()
        if held[name] is None and (form := fetchable(one)) is not None
    }
    reasons: dict[str, tuple[str, tuple[str, ...]]] = {}
    if offline() or not fetching:
        why = "DGBENCH_OFFLINE is set" if offline() else "--offline"
        reasons = dict.fromkeys(wanted, (why, ()))
    elif wanted:
        reasons = _fetch_all({name: (cards[name], form) for name, form in wanted.items()}, progress)
    return [
        _source(one, held[name], name in wanted and name not in reasons, reasons.get(name))
        for name, one in cards.items()
    ]


def fetchable(one: DatasetCard) -> DatasetVariant | None:
    """The form of a dataset that a run may fetch by itself: each file has an address and a hash."""
    forms = (f for f in downloadable(one) if all(ref.hashed for ref in f.files))
    return next(forms, None)


def _fetch_all(
    wanted: dict[str, tuple[DatasetCard, DatasetVariant]], progress: Progress | None
) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Fetch forms; why not, and whose silence it was, for each that did not come."""
    hosts = {
        name: {host_of(ref.url or "") for ref in form.files} for name, (_, form) in wanted.items()
    }
    urls = {ref.url or "" for _, form in wanted.values() for ref in form.files}
    silent = unreachable(urls, CONNECT_S)
    limits = TransferLimits(CONNECT_S, STALL_S, FETCH_S, FETCH_BYTES)
    reasons: dict[str, tuple[str, tuple[str, ...]]] = {}
    for name, (one, form) in wanted.items():
        if dead := sorted(hosts[name] & silent.keys()):
            reasons[name] = (silent[dead[0]], (dead[0],))
            continue
        try:
            fetch(one, form=form.name, progress=progress, limits=limits)
        except TransferError as error:
            said = str(error)
            why = said.removeprefix(f"{error.host}: ")
            reasons[name] = (said, ()) if said == why else (why, (error.host,))
            if error.lasting:
                silent[error.host] = why
        except DataError:
            reasons[name] = ("what came is not the file of the card", tuple(sorted(hosts[name])))
        except DgbenchError as error:
            reasons[name] = (str(error), ())
    return reasons


def _source(
    one: DatasetCard,
    held: LocalVariant | None,
    fetched: bool,
    failed: tuple[str, tuple[str, ...]] | None,
) -> DatasetSource:
    if fetched:
        return DatasetSource(name=one.name, source="fetched")
    if held is not None:
        source: Source = "DGBENCH_DATA"
        if held.bundled or held.downloaded:
            source = "bundled" if held.bundled else "downloaded"
        elif any(os.path.isabs(ref.path) for ref in held.form.files):
            source = "file"
        return DatasetSource(name=one.name, source=source)
    reason, hosts = failed or (_unfetchable(one), ())
    twin = one.twin is not None
    return DatasetSource(
        name=one.name, source="twin" if twin else "missing", reason=reason, hosts=hosts
    )


def _unfetchable(one: DatasetCard) -> str:
    """Why a run does not try to fetch a dataset."""
    if downloadable(one):
        return "no checksum known: `dgbench data fetch NAME --trust`"
    return "no address to fetch it from"
