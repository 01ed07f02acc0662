"""Hosts of one training agree before they train, by the words of their settings and by time."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.ranks.address import HostAddress, find_address, parse_endpoint, sent_bytes
from dgbench.runtime.ranks.agreement import clock_difference, difference, meeting
from dgbench.runtime.ranks.errors import HostError
from dgbench.runtime.ranks.hosts import HostSettings, parse_hosts

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


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"torch version": "2.6.0"}, ("torch version 2.6.0", "2.13.0")),
        ({"data": "wiki (twin of scale 1, sha256 cd)"}, ("wiki (twin", "wiki (real")),
        ({"more": "yes"}, ("more yes", "none")),
    ],
)
def test_one_other_host_stops_all_with_one_sentence(
    other: dict[str, str], said: tuple[str, str]
) -> None:
    found = met([FACTS, FACTS, FACTS | other], 3)
    sentences = {str(error) for error in found}
    assert len(sentences) == 1
    sentence = sentences.pop()
    assert "host2" in sentence
    assert "host0" in sentence
    assert all(words in sentence for words in said)


def test_a_late_host_hears_of_another_that_differs() -> None:
    found = met([FACTS, FACTS, FACTS | {"data": "none"}], 3, late=1)
    assert len({str(error) for error in found}) == 1
    assert "host2" in str(found[1])


def test_a_host_that_never_comes_is_told_by_those_that_did() -> None:
    found = met([FACTS, FACTS], 3, wait_s=0.3)
    assert str(found[0]) == str(found[1])
    words = str(found[0])
    assert "2 of" in words
    assert "3 hosts" in words
    assert "host0, host1" in words


def test_a_rendezvous_that_is_not_there_is_said_in_time() -> None:
    address = HostAddress("127.0.0.1", free_port(), "host1", "lo", False)
    begin = time.monotonic()
    with pytest.raises(HostError, match="nobody answered"), meeting(
        address, FACTS, hosts=2, wait_s=0.2
    ):  # fmt: skip
        pass
    assert time.monotonic() - begin < WAIT_S


def test_a_port_that_is_taken_is_said() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = HostAddress("127.0.0.1", taken.getsockname()[1], "host0", "lo", True)
        with pytest.raises(HostError, match="no rendezvous"), meeting(
            address, FACTS, hosts=1, wait_s=1
        ):  # fmt: skip
            pass


def test_the_first_difference_is_told_with_both_values(wording: Callable[[str], None]) -> None:
    assert not difference("b", FACTS, "a", dict(FACTS))
    wording(difference("b", {**FACTS, "data": "x"}, "a", FACTS))
    assert "none" in difference("b", {}, "a", FACTS)


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
        with pytest.raises(InvalidInputError, match="HOST:PORT"):
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
    with pytest.raises(InvalidInputError, match="has no address"):
        find_address("node99:1")


def test_hosts_of_a_command_line() -> None:
    assert parse_hosts("2") == (2, 2)
    assert parse_hosts("1:4") == (1, 4)
    for text in ("", "two", "1:", ":2", "1:2:3", "-1", "1.5"):
        with pytest.raises(InvalidInputError, match="hosts are"):
            parse_hosts(text)


@pytest.mark.parametrize(
    "wrong",
    [
        {"least": 0}, {"least": 3, "most": 2}, {"least": 2, "most": 2}, {"ranks": 0},
        {"ranks": 129}, {"lost_after_s": 2}, {"wait_s": 0}, {"timeout_s": -1}, {"threads": 0},
        {"restarts": -1},
    ],
)  # fmt: skip
def test_settings_out_of_range(wrong: dict[str, Any]) -> None:
    HostSettings().check()
    with pytest.raises(InvalidInputError):
        HostSettings(**wrong).check()


def test_an_own_name_that_others_cannot_reach_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some systems give the own name of a host an address of its loopback."""

    def own(name: str, port: int, **_: object) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_DGRAM, 0, "", ("127.0.1.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", own)
    with pytest.raises(InvalidInputError, match="no other host can reach"):
        find_address("node01:29500")
