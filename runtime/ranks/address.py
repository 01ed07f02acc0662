"""Addresses of a training's hosts: where they meet, and which interface leads there."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from dgbench.runtime.errors import InvalidInputError, UnsupportedError

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class HostAddress:
    """One host's view of where hosts meet.

    Attributes:
        host, port: of the rendezvous, as an address; port 0 is any free one.
        own: this host's address on the way there, by which others reach it.
        interface: the network interface that has it.
        here: whether the rendezvous is on this host.
    """

    host: str
    port: int
    own: str
    interface: str
    here: bool

    @property
    def place(self) -> str:
        """`host:port`, as it is written on a command line."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def find_address(rendezvous: str, interface: str = "") -> HostAddress:
    """This host's view of a rendezvous `HOST:PORT`; without one, of a training on this host alone.

    Args:
        rendezvous: the same words on every host.
        interface: that ranks exchange rows over; "" is the one that leads to the rendezvous.

    Raises:
        InvalidInputError: words that are no address, or an interface that is not here.
        UnsupportedError: no way leads there.
    """
    if not rendezvous:
        _check_interface(interface)
        return HostAddress(LOOPBACK, 0, LOOPBACK, interface or interface_of(LOOPBACK), True)
    name, port = parse_endpoint(rendezvous)
    own, host = _way(name, port)
    here = _is_here(host)
    if here and own.startswith("127.") and name != "localhost" and not name.startswith("127."):
        raise InvalidInputError(
            f"the rendezvous '{name}' is {host} on this host, which no other host can reach",
            hint="name it by the address that other hosts know",
        )
    _check_interface(interface)
    return HostAddress(host, port, own, interface or interface_of(own), here)


def parse_endpoint(text: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT`; an address with colons stands in brackets."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or not 1 <= int(port) <= 65535:
        raise InvalidInputError(
            f"the rendezvous is '{text}', allowed: HOST:PORT with a port from 1 to 65535",
            hint="such as node01:29500",
        )
    return host, int(port)


def interface_of(address: str) -> str:
    """Name of the network interface of this host that has an address.

    Raises:
        UnsupportedError: none has it.
    """
    import psutil

    for name, ways in psutil.net_if_addrs().items():
        if any(way.address.partition("%")[0] == address for way in ways):
            return name
    raise UnsupportedError(f"no network interface of this host has the address {address}")


def sent_bytes(interface: str) -> int:
    """Bytes that left this host over an interface since it was there, all headers included.

    Raises:
        InvalidInputError: there is no such interface.
    """
    import psutil

    counters = psutil.net_io_counters(pernic=True, nowrap=False)
    if interface not in counters:
        raise InvalidInputError(_unknown(interface, counters))
    return counters[interface].bytes_sent


def _check_interface(interface: str) -> None:
    if interface:
        sent_bytes(interface)


def _unknown(interface: str, known: object) -> str:
    return f"the interface is '{interface}', allowed here: {', '.join(sorted(known))}"  # type: ignore[call-overload]


def _way(name: str, port: int) -> tuple[str, str]:
    """Own address on the way to a host, and the address of that host."""
    try:
        found = socket.getaddrinfo(name, port, type=socket.SOCK_DGRAM)
    except OSError as error:
        raise InvalidInputError(
            f"the rendezvous '{name}' has no address here: {error}",
            hint="give the host's address instead of its name",
        ) from None
    reasons = []
    for family, kind, _, _, place in found:
        with socket.socket(family, kind) as probe:
            try:
                probe.connect(place)  # sends nothing, but asks for the way
                return probe.getsockname()[0], str(place[0])
            except OSError as error:
                reasons.append(f"{place[0]}: {error.strerror}")
    raise UnsupportedError(f"no way leads from this host to '{name}' ({'; '.join(reasons)})")


def _is_here(host: str) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return False
    return True
