"""The cluster file: how jobs are started, in TOML."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from dgbench.runtime.errors import InvalidInputError, MissingPackageError, unknown_key

Whole = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]


class ClusterFile(msgspec.Struct, frozen=True, kw_only=True):
    """Contents of a cluster file.

    Attributes:
        executor: `slurm`; `local`, processes of this machine; `debug`, this process itself.
        folder: for submissions, on a disk that all nodes share.
        time: minutes that a job may take. gpus, cpus: of a job; 0 cpus: what the cluster gives.
        memory: GiB of a job; 0: what the cluster gives.
        concurrent: most jobs at once; 0: 256 under Slurm, else 1, as jobs that share a machine
            disturb each other.
        requeues: how often a job may run out of its time and go on.
        lost: minutes without news of a job after which its group is lost.
        warning: seconds before the end of its time at which a job stops and is requeued.
        python: command that starts Python on a node; "" for this one.
        setup: shell commands before it.
        partition, account, qos, constraint: of Slurm. exclusive: ask for whole nodes.
        options: further options of sbatch, by name without dashes.
    """

    executor: Literal["slurm", "local", "debug"]
    folder: str = "results/cluster"
    time: Positive = 60
    gpus: Whole = 0
    cpus: Whole = 0
    memory: Whole = 0
    concurrent: Whole = 0
    requeues: Whole = 3
    lost: Positive = 15
    warning: Positive = 90
    python: str = ""
    setup: list[str] = []
    partition: str = ""
    account: str = ""
    qos: str = ""
    constraint: str = ""
    exclusive: bool = True
    options: dict[str, str | int | bool] = {}

    @property
    def most(self) -> int:
        """Most jobs at once."""
        return self.concurrent or (256 if self.executor == "slurm" else 1)

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters of submitit's executor."""
        if self.executor == "debug":
            return {}
        common: dict[str, Any] = {"setup": self.setup} if self.setup else {}
        if self.executor == "local":
            local = {"timeout_min": self.time, "gpus_per_node": self.gpus}
            return {**common, **local, "signal_delay_s": self.warning}
        given = {
            "partition": self.partition,
            "account": self.account,
            "qos": self.qos,
            "constraint": self.constraint,
            "cpus_per_task": self.cpus,
            "gpus_per_node": self.gpus,
            "mem_gb": self.memory,
            # srun does not take it over from sbatch
            "srun_args": ["--cpus-per-task", str(self.cpus)] if self.cpus else [],
        }
        return {
            **common,
            **{name: value for name, value in given.items() if value},
            "job_name": "dgbench",
            "time": self.time,
            "ntasks_per_node": 1,
            "exclusive": self.exclusive or None,
            "signal_delay_s": self.warning,
            "array_parallelism": self.most,
            "additional_parameters": {"requeue": True, **self.options},
        }


_OF_SLURM = (
    "partition", "account", "qos", "constraint", "exclusive", "options", "cpus", "memory",
)  # fmt: skip


def read_cluster(path: Path) -> ClusterFile:
    """The cluster file at `path`.

    Raises:
        UnknownKeyError: a key is not known; the nearest ones are named.
        InvalidInputError: it cannot be read, is no TOML, or a value is not what its key takes.
        MissingPackageError: this Python reads no TOML.
    """
    try:
        plain = msgspec.toml.decode(path.read_bytes())
    except OSError as error:
        raise InvalidInputError(f"cannot read --cluster {path}: {error.strerror}") from error
    except ImportError as error:
        raise MissingPackageError(
            "this Python has no reader of TOML", hint="pip install 'dgbench[cluster]'"
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInputError(f"{path} is not TOML: {error}") from error
    for key in plain:
        if key not in ClusterFile.__struct_fields__:
            raise unknown_key("key", key, ClusterFile.__struct_fields__, of=str(path))
    try:
        found = msgspec.convert(plain, ClusterFile)
    except msgspec.ValidationError as error:
        raise InvalidInputError(f"{path} is no cluster file: {error}") from error
    for key in plain:
        if found.executor != "slurm" and key in _OF_SLURM:
            raise InvalidInputError(
                f"key '{key}' of {path} is for executor 'slurm', found '{found.executor}'"
            )
    if 60 * found.time <= found.warning:
        raise InvalidInputError(
            f"warning of {path} is {found.warning} s, allowed: less than time, {60 * found.time} s"
        )
    return found
