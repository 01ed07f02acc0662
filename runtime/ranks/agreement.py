"""Agreement of the hosts of one training before any of them computes.

Hosts meet at a store of torch.distributed. The host that has it says what the training is; every
other compares itself with that, and its clock too: heartbeats of the rendezvous are stamps of
clocks, so a host whose clock is off would be taken for a dead one. One host that differs, or does
not come, ends the training on all of them with the same sentence.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

import torch.distributed as dist

from dgbench.runtime.ranks.address import HostAddress
from dgbench.runtime.ranks.errors import HostError

CLOCK_TOLERANCE_S: Final = 2.0
"""Most that clocks of hosts may differ by; time servers keep them within milliseconds."""

CLOCK_QUESTIONS: Final = 3
"""Times that a host asks for the clock of the rendezvous; the quickest answer counts."""

LOOK_S: Final = 0.05
"""Between two looks whether the rendezvous, or a host, is there yet."""

LAST_S: Final = 10.0
"""Longer that a host waits for the verdict than the host which gives it waits for others."""

_END: Final = b"end"

wall_clock: Callable[[], float] = time.time
"""Seconds of this host's clock."""


@contextmanager
def meeting(
    address: HostAddress, facts: Mapping[str, str], *, hosts: int, wait_s: float
) -> Iterator[Any]:
    """Meet the other hosts; the store where they met, as long as the training lasts.

    Args:
        address: of `find_address`.
        facts: what has to be equal on all hosts, as words by name.
        hosts: that are needed.
        wait_s: for all of them.

    Raises:
        HostError: a host does not come, or is not like the others.
    """
    deadline = time.monotonic() + wait_s
    store = _open(address, wait_s, deadline)
    if not address.here:
        _arrive(store, address, facts)
        yield store
        return
    with _clock_answers(address.host, store.port):
        store.set("facts", json.dumps([address.own, dict(facts)]))
        verdict = _verdict(store, address, hosts, wait_s, deadline)
        store.set("verdict", verdict)
        if verdict:
            # Others have to have read it before the store ends with this process.
            _read_by_all(store, hosts, deadline)
            raise _error(verdict)
        yield store


def difference(own: str, facts: Mapping[str, str], first: str, wanted: Mapping[str, str]) -> str:
    """Sentence on the first fact in which host `own` is not as host `first`, or ""."""
    for name in [*wanted, *(name for name in facts if name not in wanted)]:
        mine, theirs = facts.get(name, "none"), wanted.get(name, "none")
        if mine != theirs:
            return f"{own} has the {name} {mine}, {first} has {theirs}"
    return ""


def clock_difference(own: str, first: str, samples: list[tuple[float, float, float]]) -> str:
    """Sentence on a clock that is off by more than is allowed, or "".

    Args:
        own, first: hosts. samples: own clock before asking, the other's, own clock after.
    """
    before, there, after = min(samples, key=lambda sample: sample[2] - sample[0])
    ahead = (before + after) / 2 - there
    if abs(ahead) - (after - before) / 2 <= CLOCK_TOLERANCE_S:
        return ""
    side = "ahead of" if ahead > 0 else "behind"
    return (
        f"the clock of {own} is {abs(ahead):.1f} s {side} that of {first}, allowed: "
        f"{CLOCK_TOLERANCE_S:g} s"
    )


def _error(sentence: str) -> HostError:
    return HostError(
        f"the hosts do not train together: {sentence}",
        hint="nothing was trained; start all hosts again with the same command",
    )


def _open(address: HostAddress, wait_s: float, deadline: float) -> Any:
    """The store at the rendezvous: made on its host, connected to by others."""
    timeout = timedelta(seconds=wait_s + LAST_S)
    if not address.here:
        _wait_for_server(address, wait_s, deadline)
    try:
        return dist.TCPStore(
            address.host, address.port, is_master=address.here, wait_for_workers=False,
            multi_tenant=True, timeout=timeout,
        )  # fmt: skip
    except (RuntimeError, ValueError) as error:
        text = " ".join(str(error).split())
        raise HostError(
            f"there can be no rendezvous at {address.place}: {text}",
            hint="another program may have the port: choose another one on all hosts",
        ) from None


def _wait_for_server(address: HostAddress, wait_s: float, deadline: float) -> None:
    while True:
        try:
            socket.create_connection((address.host, address.port), timeout=5).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise HostError(
                    f"nobody answered at the rendezvous {address.place} within {wait_s:g} s: "
                    f"{error.strerror or error}",
                    hint="start the command on the host that has this address, too",
                ) from None
        time.sleep(LOOK_S)


def _arrive(store: Any, address: HostAddress, facts: Mapping[str, str]) -> None:
    """Be a host that is not that of the rendezvous: compare, tell, and wait for the verdict."""
    try:
        store.add("visitors", 1)
        first, wanted = json.loads(store.get("facts"))
        problem = difference(address.own, facts, first, wanted)
        problem = problem or clock_difference(address.own, first, _clock_samples(store))
        number = store.add("arrivals", 1)
        store.set(f"arrival/{number}", json.dumps([address.own, problem]))
        verdict = store.get("verdict").decode() or problem
        if verdict:
            store.add("readers", 1)
    except (RuntimeError, ValueError) as error:
        text = " ".join(str(error).split())
        raise HostError(
            f"the host of the rendezvous {address.place} is gone or answers nothing: {text}",
            hint="start all hosts again with the same command",
        ) from None
    if verdict:
        raise _error(verdict)


def _verdict(store: Any, address: HostAddress, hosts: int, wait_s: float, deadline: float) -> str:
    """Sentence on a host that differs or is missing, or ""; asked on the host of the rendezvous."""
    came = [address.own]
    while len(came) < hosts:
        arrival = f"arrival/{len(came)}"
        while not store.check([arrival]):
            if time.monotonic() > deadline:
                return (
                    f"{len(came)} of {hosts} hosts came to {address.place} within {wait_s:g} s: "
                    f"{', '.join(came)}"
                )
            time.sleep(LOOK_S)
        host, problem = json.loads(store.get(arrival))
        if problem:
            return problem
        came.append(host)
    return ""


def _read_by_all(store: Any, hosts: int, deadline: float) -> None:
    """Wait until all other hosts have read the verdict; after `deadline`, those that have come.

    One that goes before it has read makes this last `LAST_S`.
    """
    end = time.monotonic() + LAST_S
    while (now := time.monotonic()) < end:
        others = hosts - 1 if now < deadline else store.add("visitors", 0)
        if store.add("readers", 0) >= others:
            return
        time.sleep(LOOK_S)


def _clock_samples(store: Any) -> list[tuple[float, float, float]]:
    found = []
    for _ in range(CLOCK_QUESTIONS):
        number = store.add("questions", 1)
        before = wall_clock()
        store.set(f"question/{number}", "")
        there = float(store.get(f"answer/{number}"))
        found.append((before, there, wall_clock()))
    return found


@contextmanager
def _clock_answers(host: str, port: int) -> Iterator[None]:
    """Answer hosts that ask for this host's clock, also those that come later."""
    year = timedelta(days=365)
    asked = dist.TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=year)

    def answer() -> None:
        number = 1
        try:
            while asked.get(f"question/{number}") != _END:
                asked.set(f"answer/{number}", repr(wall_clock()))
                number += 1
        except RuntimeError:
            return  # the store has ended

    thread = threading.Thread(target=answer, name="clock-answers", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end = dist.TCPStore(host, port, is_master=False, wait_for_workers=False)
        end.set(f"question/{end.add('questions', 1)}", _END)
        thread.join(LAST_S)
