"""A submission: the plan of a run, dealt out in groups, in a folder that all nodes share.

`submission.json` and `plan.json` are written once; each shard has a folder with its run below
`shards/`, and submitit keeps its files in `jobs/`.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec

import dgbench
from dgbench.harness.cluster.config import ClusterFile
from dgbench.harness.machine.provenance import code_version
from dgbench.harness.plan import GroupKey, Plan
from dgbench.harness.store import list_runs
from dgbench.harness.store.files import cannot_write, from_checked, to_checked, write_whole
from dgbench.runtime.errors import InvalidInputError, StoreError


class SubmissionInfo(msgspec.Struct, kw_only=True):
    """Contents of submission.json.

    Attributes:
        submitted: when, UTC. dgbench, code: version and commit that all shards must have.
        settings: of the run (papers, experiments, command).
        groups: of the plan, one a shard. cluster: the cluster file.
        jobs: id of each shard's job, once it is submitted.
        rounds: whether shards may add rounds. out: folder that the run is to lie in, or "".
        into: run whose groups are measured again, or "". collected: run that it became, or "".
        salt: secret of the labels of its nodes, which never leaves this folder.
    """

    submitted: str
    dgbench: str
    code: dict[str, Any]
    settings: dict[str, Any]
    groups: list[GroupKey]
    cluster: ClusterFile
    jobs: dict[str, str] = {}
    rounds: bool = False
    out: str = ""
    into: str = ""
    collected: str = ""
    salt: str = ""


class Submission:
    """A submission's folder.

    Attributes:
        path: the folder. info: contents of submission.json. plan: of all shards together.
    """

    def __init__(self, path: Path, info: SubmissionInfo, plan: Plan) -> None:
        self.path, self.info, self.plan = path, info, plan

    @classmethod
    def create(
        cls,
        cluster: ClusterFile,
        plan: Plan,
        settings: dict[str, Any],
        *,
        groups: Sequence[GroupKey] | None = None,
        rounds: bool = False,
        out: Path | None = None,
        into: Path | None = None,
    ) -> Submission:
        """Make the folder of a new submission.

        Args:
            groups: of the plan that are submitted; None takes all with cells that will start.

        Raises:
            StoreError: the folder cannot be written.
        """
        if groups is None:
            keys = [(c.cell.paper, c.cell.experiment, c.cell.group) for c in plan.runnable]
            groups = list(dict.fromkeys(keys))
        now = datetime.now(timezone.utc)
        info = SubmissionInfo(
            submitted=now.isoformat(timespec="milliseconds"),
            dgbench=dgbench.__version__,
            code=code_version(),
            settings=settings,
            groups=list(groups),
            cluster=cluster,
            rounds=rounds,
            out=str(out.resolve()) if out is not None else "",
            into=str(into.resolve()) if into is not None else "",
            salt=secrets.token_hex(16),
        )
        root = Path(cluster.folder).expanduser().resolve()
        path, number = root / now.strftime("%Y-%m-%dT%H%M"), 1
        try:
            root.mkdir(parents=True, exist_ok=True)
            while True:
                try:
                    path.mkdir()
                    break
                except FileExistsError:
                    number += 1
                    path = root / f"{now:%Y-%m-%dT%H%M}-{number}"
            (path / "shards").mkdir()
            (path / "jobs").mkdir()
        except OSError as error:
            raise cannot_write(path, error) from error
        found = cls(path, info, plan)
        write_whole(path / "plan.json", to_checked(msgspec.to_builtins(plan)))
        found.keep()
        return found

    @classmethod
    def open(cls, path: Path) -> Submission:
        """Open the folder of a submission. Raises StoreError where it is none or is damaged."""
        try:
            info = from_checked(path / "submission.json", required=True)
            plan = from_checked(path / "plan.json", required=True)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise StoreError(
                f"{path} is not the folder of a submission (it has no submission.json)",
                hint="name what 'dgbench run --cluster' printed, below the cluster file's folder",
            ) from error
        try:
            found = cls(path.resolve(), msgspec.convert(info, SubmissionInfo),
                        msgspec.convert(plan, Plan))  # fmt: skip
            datetime.fromisoformat(found.info.submitted)
        except (msgspec.ValidationError, ValueError) as error:
            raise StoreError(f"{path} does not hold a submission: {error}") from error
        if fault := found.plan.fault:
            raise StoreError(f"the plan of {path} cannot be read: {fault}")
        return found

    @property
    def submitted(self) -> datetime:
        """Time of the submitting host when it was made."""
        return datetime.fromisoformat(self.info.submitted)

    def keep(self, **changes: Any) -> None:
        """Write submission.json, after these changes. Raises StoreError."""
        self.info = msgspec.structs.replace(self.info, **changes)
        write_whole(self.path / "submission.json", to_checked(msgspec.to_builtins(self.info)))

    def shard_folder(self, number: int) -> Path:
        """Folder of a shard's runs."""
        return self.path / "shards" / f"{number:04d}"

    def shard_run(self, number: int) -> Path | None:
        """Run of a shard; the newest, where its group was begun anew on another make of node."""
        runs = list_runs(self.shard_folder(number))
        return runs[-1] if runs else None

    def shard_name(self, number: int) -> str:
        """A shard in words: its number and group."""
        return f"shard {number:04d} ({' '.join(self.info.groups[number])})"

    def plan_of(self, number: int) -> Plan:
        """The part of the plan that a shard runs: the cells of its group."""
        if not 0 <= number < len(self.info.groups):
            raise InvalidInputError(
                f"shard {number} of {self.path}, allowed: 0 to {len(self.info.groups) - 1}"
            )
        mine = tuple(self.info.groups[number])
        cells = [
            one for one in self.plan.cells
            if (one.cell.paper, one.cell.experiment, one.cell.group) == mine
        ]  # fmt: skip
        return msgspec.structs.replace(self.plan, cells=cells)
