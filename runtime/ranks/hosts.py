"""Starting this host's ranks of a training that several hosts share, by torch's elastic launcher.

`launch_on_hosts` runs on every host with the same arguments. Hosts agree first (`agreement`), then
torch.distributed.elastic starts the ranks, watches over them, and starts all of them again, on all
hosts, when one is lost: with the host that comes back in its place, or without it where fewer hosts
are enough. What is trained goes on from where the function kept it.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import shutil
import signal
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from dgbench.runtime.collectives import Communicator
from dgbench.runtime.errors import DgbenchError, InvalidInputError, SignalExit
from dgbench.runtime.precision import plain_products
from dgbench.runtime.ranks.address import HostAddress, find_address
from dgbench.runtime.ranks.agreement import meeting
from dgbench.runtime.ranks.errors import HostError
from dgbench.runtime.ranks.group import choose_backend, join
from dgbench.runtime.ranks.launcher import MAX_RANKS, TRAINING
from dgbench.runtime.ranks.process import die_with_launcher, keep_freed_memory
from dgbench.runtime.threads import one_thread

_LOG = logging.getLogger(__name__)

MAX_HOSTS: Final = 1024
RUN: Final = "dgbench-ranks"
"""Name of the training at its rendezvous, where there is no other."""

MONITOR_S: Final = 0.05
"""Between two looks at the ranks of this host."""

HEARTBEATS: Final = 3
"""Heartbeats that a host misses before it counts as lost."""

SIGNALS: Final = ("SIGTERM", "SIGINT", "SIGHUP")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings:
    """Settings of the hosts of a training, equal on all of them but for `interface`.

    Attributes:
        least, most: hosts that have to be there, and that may be.
        ranks: of every host.
        rendezvous: `HOST:PORT` of the host where they meet; "" for this host alone.
        interface: that ranks exchange rows over; "" is the one that leads to the rendezvous.
        wait_s: for hosts to come, at the beginning and after a loss.
        lost_after_s: silence after which a host counts as lost; as long the fewest hosts wait for
            more.
        restarts: how often ranks are started again after a loss.
        timeout_s: longest that a collective waits.
        device, backend, threads, seed: of each rank, as of `launch`.
    """

    least: int = 1
    most: int = 1
    ranks: int = 1
    rendezvous: str = ""
    interface: str = ""
    wait_s: float = 600.0
    lost_after_s: int = 15
    restarts: int = 3
    timeout_s: float = 600.0
    device: str = "cpu"
    backend: str = "auto"
    threads: int = 1
    seed: int = 1

    def check(self) -> HostSettings:
        """Return self; raise InvalidInputError naming a field out of range."""
        if not 1 <= self.least <= self.most <= MAX_HOSTS:
            raise InvalidInputError(
                f"hosts are {self.least} to {self.most}, allowed: 1 to {MAX_HOSTS}, the fewer first"
            )
        if not 1 <= self.ranks <= MAX_RANKS:
            raise InvalidInputError(f"ranks of a host are {self.ranks}, allowed: 1 to {MAX_RANKS}")
        if self.most > 1 and not self.rendezvous:
            raise InvalidInputError(
                f"{self.most} hosts need a place to meet", hint="--rendezvous HOST:PORT, on each"
            )
        if self.lost_after_s < HEARTBEATS:
            raise InvalidInputError(
                f"a host counts as lost after {self.lost_after_s} s, allowed: {HEARTBEATS} or more"
            )
        for name in ("wait_s", "timeout_s", "threads"):
            if not getattr(self, name) > 0:
                raise InvalidInputError(f"'{name}' is {getattr(self, name)!r}; more than 0 needed")
        if self.restarts < 0:
            raise InvalidInputError(f"'restarts' is {self.restarts!r}; 0 or more is allowed")
        return self

    def facts(self) -> dict[str, str]:
        """Settings that have to be equal on all hosts, as words."""
        return {
            "number of hosts": f"{self.least} to {self.most}",
            "number of ranks": str(self.ranks),
            "number of threads": str(self.threads),
            "device": self.device,
            "backend": choose_backend(self.backend, self.device, self.ranks),
            "seed": str(self.seed),
        }


def parse_hosts(text: str) -> tuple[int, int]:
    """Fewest and most hosts, of `2` or `1:2`. Raises InvalidInputError."""
    least, colon, most = text.partition(":")
    if not least.isdecimal() or (colon and not most.isdecimal()):
        raise InvalidInputError(
            f"hosts are '{text}', allowed: a number, or the fewest and the most as 1:2"
        )
    return int(least), int(most if colon else least)


@dataclass(frozen=True, slots=True)
class RankHost:
    """The host of a rank.

    Attributes:
        number, hosts: which one of how many.
        address, interface: by which others reach it.
        first: whether the rank is the first one of its host.
        restarts: how often this host's ranks have been started again.
    """

    number: int
    hosts: int
    address: str
    interface: str
    first: bool
    restarts: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """Result of ranks that agree not to begin; it is no failure that another try would mend."""

    message: str
    hint: str = ""


def launch_on_hosts(
    function: Callable[..., Any],
    args: Sequence[Any],
    settings: HostSettings,
    facts: Mapping[str, str],
) -> tuple[Any, HostAddress]:
    """Run `function(communicator, rank_host, *args)` as this host's ranks, among those of others.

    Args:
        function: module-level; what it returns is pickled.
        args: the same for every rank of this host, which are forks of this process on a CPU.
        settings: equal on all hosts.
        facts: what else has to be equal on all hosts, as words by name.

    Returns:
        What the first rank of this host returned, and this host's view of the rendezvous.

    Raises:
        InvalidInputError, UnsupportedError: settings that cannot be here.
        HostError: a host did not come, differs from the others, or was lost once too often.
        DgbenchError: what the ranks refused.
    """
    address = find_address(settings.check().rendezvous, settings.interface)
    wanted = {**settings.facts(), **facts}
    with (
        one_thread(),  # or a fork of this process could not compute
        meeting(address, wanted, hosts=settings.least, wait_s=settings.wait_s) as store,
    ):
        results = _elastic(function, args, settings, address, store.port)
    found = results[min(results)]
    if isinstance(found, Refusal):
        raise DgbenchError(found.message, hint=found.hint)
    return found, address


def _elastic(
    function: Callable[..., Any],
    args: Sequence[Any],
    settings: HostSettings,
    address: HostAddress,
    port: int,
) -> dict[int, Any]:
    """Results by rank of this host."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import api as rendezvous
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    start = _start_method(settings.device)
    for module in TRAINING if start == "fork" else ():
        importlib.import_module(module)  # once, or each rank would have to
    place = HostAddress(address.host, port, address.own, address.interface, address.here)
    logs = tempfile.mkdtemp(prefix="dgbench-ranks-")
    config = LaunchConfig(
        min_nodes=settings.least,
        max_nodes=settings.most,
        nproc_per_node=settings.ranks,
        run_id=RUN,
        rdzv_backend="c10d",
        rdzv_endpoint=place.place,
        rdzv_configs={
            "is_host": address.here,
            "timeout": int(settings.wait_s) or 1,
            "join_timeout": int(settings.wait_s) or 1,
            "last_call_timeout": settings.lost_after_s,
            "keep_alive_interval": settings.lost_after_s // HEARTBEATS,
            "keep_alive_max_attempt": HEARTBEATS,
        },
        max_restarts=settings.restarts,
        monitor_interval=MONITOR_S,
        start_method=start,
        local_addr=address.own,
        logs_specs=DefaultLogsSpecs(log_dir=logs),
        signals_to_handle=",".join(SIGNALS),
    )
    try:
        with _launcher_quiet(), _handlers_kept(), _fresh_stores():
            return elastic_launch(config, _be_rank)(function, tuple(args), settings, place)
    except SignalException as error:
        if error.sigval == signal.SIGINT:
            raise KeyboardInterrupt from None
        raise SignalExit(128 + int(error.sigval)) from None
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        told = failure.message
        reason = told["message"] if isinstance(told, dict) else told
        raise HostError(
            f"rank {rank} failed after {settings.restarts} restarts: {reason}"
        ) from None
    except rendezvous.RendezvousTimeoutError:
        raise HostError(
            f"fewer than {settings.least} hosts came together at {place.place} within "
            f"{settings.wait_s:g} s"
        ) from None
    except rendezvous.RendezvousClosedError:
        raise HostError(f"the training at {place.place} has ended without this host") from None
    except (rendezvous.RendezvousConnectionError, torch.distributed.DistError) as error:
        text = " ".join(str(error.__cause__ or error).split())
        raise HostError(
            f"the host of the rendezvous {place.place} is gone: {text}",
            hint="start all hosts again with the same command: training goes on from what was kept",
        ) from None
    finally:
        shutil.rmtree(logs, ignore_errors=True)


def _start_method(device: str) -> str:
    """Forks share what this process has loaded; a device does not work in them."""
    return "spawn" if torch.device(device).type == "cuda" else "fork"


def _be_rank(
    function: Callable[..., Any], args: tuple[Any, ...], settings: HostSettings, host: HostAddress
) -> Any:
    """Main function of a rank's process."""
    for name in SIGNALS:  # torch's launcher handles them, this process ends at once
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    die_with_launcher()
    keep_freed_memory()
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(settings.threads)
    torch.set_num_threads(settings.threads)
    plain_products()
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        os.environ.setdefault(name, host.interface)
    place = RankHost(
        number=int(os.environ["GROUP_RANK"]),
        hosts=int(os.environ["GROUP_WORLD_SIZE"]),
        address=host.own,
        interface=host.interface,
        first=os.environ["LOCAL_RANK"] == "0",
        restarts=int(os.environ["TORCHELASTIC_RESTART_COUNT"]),
    )
    try:
        with join(
            timeout_s=settings.timeout_s,
            backend=settings.backend,
            device=settings.device,
            seed=settings.seed,
        ) as comm:
            return _run(comm, function, place, args)
    except Exception as error:
        text = " ".join(str(error).split())
        _LOG.warning("rank %s on %s: %s", os.environ["RANK"], host.own, text)
        raise


def _run(
    comm: Communicator, function: Callable[..., Any], place: RankHost, args: tuple[Any, ...]
) -> Any:
    result = function(comm, place, *args)
    comm.barrier()  # a rank that left at once might take with it what others have not read yet
    return result


@contextlib.contextmanager
def _launcher_quiet() -> Iterator[None]:
    """Keep what torch's launcher logs off the terminal, unless everything is asked for.

    What a user needs of it is said by the ranks and by the errors of this module.
    """
    if logging.getLogger().isEnabledFor(logging.DEBUG):
        yield
        return
    logger, nowhere = logging.getLogger("torch.distributed.elastic"), logging.NullHandler()
    before, logger.propagate = logger.propagate, False
    logger.addHandler(nowhere)
    try:
        with warnings.catch_warnings():
            # From 3.12 on Python warns of forks of a process with a second thread.
            warnings.filterwarnings("ignore", "This process .* is multi-threaded")
            yield
    finally:
        logger.removeHandler(nowhere)
        logger.propagate = before


@contextlib.contextmanager
def _handlers_kept() -> Iterator[None]:
    """Put signal handlers back that torch's launcher replaces."""
    before = {name: signal.getsignal(getattr(signal, name)) for name in SIGNALS}
    try:
        yield
    finally:
        for name, handler in before.items():
            if handler is not None:
                signal.signal(getattr(signal, name), handler)


@contextlib.contextmanager
def _fresh_stores() -> Iterator[None]:
    """Have the ranks of each start meet at a store of their own.

    By default torch's launcher keeps one for all starts, and a group that is formed anew would find
    the addresses of the one that was lost.
    """
    name = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
