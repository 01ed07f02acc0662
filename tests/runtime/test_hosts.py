"""Hosts of one training agree before they train, by the words of their settings and by time."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import pytest

from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.ranks.address import HostAddress, find_address, parse_endpoint, sent_bytes
from dgbench.runtime.ranks.agreement import clock_difference, meeting
from dgbench.runtime.ranks.errors import HostError
from dgbench.runtime.ranks.hosts import HostSettings

FACTS = {"torch version": "2.13.0", "data": "wiki (real, sha256 ab)"}
WAIT_S = 60.0


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def met(
    facts: list[dict[str, str]], hosts: int, wait_s: float = WAIT_S, late: int = -1
) -> list[Any]:
    """Errors of hosts after they have met, or None; the rendezvous is on the first one."""
    port, found = free_port(), [None] * len(facts)

    def be(number: int) -> None:
        address = HostAddress("127.0.0.1", port, f"host{number}", "lo", number == 0)
        if number == late:
            time.sleep(0.3)
        try:
            with meeting(address, facts[number], hosts=hosts, wait_s=wait_s):
                arrived.wait(WAIT_S)
        except HostError as error:
            found[number] = error
            arrived.abort()
        except threading.BrokenBarrierError:
            pass

    arrived = threading.Barrier(len(facts))
    threads = [threading.Thread(target=be, args=(number,)) for number in range(len(facts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_equal_hosts_train() -> None:
    assert met([FACTS] * 3, 3) == [None] * 3


@pytest.mark.parametrize("late", [-1, 1])
def test_one_other_host_stops_all_with_one_sentence(late: int) -> None:
    errors = met([FACTS, FACTS, FACTS | {"data": "wiki (twin)"}], 3, late=late)
    (sentence,) = {str(error) for error in errors}
    assert all(word in sentence for word in ("host2", "wiki (twin", "wiki (real"))


def test_a_host_that_never_comes_is_told_by_those_that_did() -> None:
    errors = met([FACTS, FACTS], 3, wait_s=0.3)
    assert str(errors[0]) == str(errors[1])
    assert "host0, host1" in str(errors[0])


def test_a_rendezvous_that_is_not_there_is_said_in_time() -> None:
    address, begin = HostAddress("127.0.0.1", free_port(), "host1", "lo", False), time.monotonic()
    with pytest.raises(HostError), meeting(address, FACTS, hosts=2, wait_s=0.2):
        pass
    assert time.monotonic() - begin < WAIT_S


@pytest.mark.parametrize(
    ("samples", "said"),
    [
        ([(100.0, 100.0, 100.001)], ""),
        ([(103.0, 100.0, 103.001)], "3.0 s ahead of"),
        ([(100.0, 107.5, 100.001)], "7.5 s behind"),
        ([(103.0, 100.0, 105.0)], "4.0 s ahead of"),  # at least 3 s: a second of doubt
        ([(102.0, 100.0, 103.0)], ""),  # 2.5 s give or take 0.5 s
        ([(100.0, 104.0, 110.0), (102.0, 102.0, 102.001)], ""),  # the quickest answer counts
    ],
)
def test_clocks_may_differ_by_what_asking_leaves_open(
    samples: list[tuple[float, float, float]], said: str
) -> None:
    found = clock_difference("b", "a", samples)
    assert (said in found) if said else not found


def test_endpoints() -> None:
    assert parse_endpoint("node01:29500") == ("node01", 29500)
    assert parse_endpoint("[fe80::1]:80") == ("fe80::1", 80)
    for text in ("node01", "node01:", ":29500", "node01:0", "node01:65536", "node01:x", ""):
        with pytest.raises(InvalidInputError):
            parse_endpoint(text)


def test_an_address_knows_its_interface_and_whether_it_is_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alone = find_address("")
    assert (alone.host, alone.own, alone.here, alone.port) == ("127.0.0.1", "127.0.0.1", True, 0)
    assert sent_bytes(alone.interface) >= 0
    named = find_address("127.0.0.1:29500")
    assert named.here
    assert named.place == "127.0.0.1:29500"
    assert HostAddress("::1", 1, "::1", "lo", True).place == "[::1]:1"
    with pytest.raises(InvalidInputError, match="nowhere"):
        find_address("", interface="nowhere")

    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror("no such name")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(InvalidInputError):
        find_address("node99:1")


def test_settings_out_of_range() -> None:
    HostSettings().check()
    for wrong in (
        {"least": 0}, {"least": 3, "most": 2}, {"least": 2, "most": 2}, {"ranks": 0},
        {"ranks": 129}, {"lost_after_s": 2}, {"wait_s": 0}, {"timeout_s": -1}, {"threads": 0},
        {"restarts": -1},
    ):  # fmt: skip
        with pytest.raises(InvalidInputError):
            HostSettings(**wrong).check()
