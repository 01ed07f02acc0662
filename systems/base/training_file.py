"""A training kept in a file after every epoch, and taken up again by any number of ranks."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import torch

from dgbench.runtime.collectives import Communicator
from dgbench.runtime.errors import DgbenchError, InvalidInputError, StoreError
from dgbench.runtime.ranks.hosts import Refusal

FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class KeptTraining:
    """A training after some epochs.

    Attributes:
        losses: of the epochs so far. state: of `AdamTrainer.training_state`.
    """

    losses: list[float]
    state: dict[str, Any]


@dataclass(frozen=True, slots=True)
class TrainingFile:
    """The file of one training in a folder; another training has another file there.

    Attributes:
        path: of the file. title: what is trained, as words.
    """

    path: Path
    title: str

    @classmethod
    def of(cls, folder: Path | None, system: str, workload: Any) -> TrainingFile | None:
        """The file of a workload's training by a system; None without a folder."""
        if folder is None:
            return None
        title = f"{system} {msgspec.json.encode(workload, order='sorted').decode()}"
        digest = hashlib.sha256(title.encode()).hexdigest()[:16]
        return cls(folder / f"{system}-{digest}.pt", title)

    def keep(self, state: dict[str, Any], losses: list[float]) -> None:
        """Write it whole or not at all; the file before stays until it is replaced.

        Raises:
            StoreError: it cannot be written.
        """
        part = self.path.with_suffix(f".{os.uname().nodename}-{os.getpid()}.part")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with part.open("wb") as file:
                torch.save(
                    {"format": FORMAT, "title": self.title, "losses": losses, "state": state}, file
                )
                file.flush()
                os.fsync(file.fileno())
            part.replace(self.path)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise StoreError(f"{self.path} cannot be written: {error}") from error

    def read(self) -> KeptTraining | None:
        """The training as it was kept, None where none was. Nothing in the file is executed.

        Raises:
            InvalidInputError: a file that is damaged, or of another training.
        """
        if not self.path.exists():
            return None
        try:
            found = torch.load(self.path, map_location="cpu", weights_only=True)
            kept = KeptTraining([float(loss) for loss in found["losses"]], dict(found["state"]))
            known = (found["format"], found["title"])
        except Exception as error:  # torch raises many kinds on a damaged file
            raise InvalidInputError(
                f"{self.path} holds no training: {type(error).__name__}",
                hint="remove it: training begins anew, or with what another host has kept",
            ) from error
        if known != (FORMAT, self.title):
            raise InvalidInputError(
                f"{self.path} is of another training (format {known[0]}): {known[1]}",
                hint="remove it, or give another folder",
            )
        return kept


class OtherRankRefused(DgbenchError):
    """A rank that cannot begin, met by one that could.

    Attributes:
        refusal: what it has against beginning.
    """

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message, hint=refusal.hint)
        self.refusal = refusal


def all_ready(comm: Communicator) -> None:
    """Meet the other ranks before the first operation between them while trainers are opened.

    A rank that cannot open its trainer tells so in `newest`, which the others meet here.

    Raises:
        OtherRankRefused: one of them cannot begin; nothing is to be exchanged any more.
    """
    for one, _ in comm.gather_objects((Refusal(""), 0)):
        if one.message:
            raise OtherRankRefused(one)


def newest(
    comm: Communicator, file: TrainingFile | None, refusal: Refusal
) -> KeptTraining | Refusal | None:
    """The training with the most epochs that any rank has kept, on all of them; None without any.

    Hosts need no common disk: each keeps its own file, and one that has lost it gets another's.

    Args:
        comm: all ranks call it. file: of this rank's host.
        refusal: what this rank has against beginning, with a message "" if nothing.

    Returns:
        The first refusal by order of rank, where there is one.
    """
    kept = None
    if file is not None and not refusal.message:
        try:
            kept = file.read()
        except InvalidInputError as error:
            refusal = Refusal(str(error), error.hint)
    told = comm.gather_objects((refusal, 0 if kept is None else len(kept.losses)))
    for one, _ in told:
        if one.message:
            return one
    epochs = [epochs for _, epochs in told]
    most = max(epochs)
    if min(epochs) == most:
        return kept
    teller = epochs.index(most)
    return comm.gather_objects(kept if comm.rank == teller else None)[teller]
