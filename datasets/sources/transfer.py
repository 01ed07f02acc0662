"""One file over HTTP: limited in size, time and redirects, and never a web page in its place."""

from __future__ import annotations

import contextlib
import errno
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

from dgbench.runtime.errors import MissingDataError

MAX_REDIRECTS: Final = 5
_CHUNK: Final = 1 << 18
_CUT: Final = "the connection was cut"
_NO_ROUTE: Final = {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EACCES}
_PAGE: Final = re.compile(rb"\s*(<!doctype html|<html|<\?xml[^>]*>\s*<!doctype html)", re.I)


@dataclass(frozen=True, slots=True)
class TransferLimits:
    """Limits of a transfer: timeouts and size.

    Attributes:
        connect_s: seconds until a host must have answered a connection.
        stall_s: seconds without a byte.
        total_s: seconds for the whole file, None for no limit.
        bytes: size of the file, None for the limit on its card.
    """

    connect_s: float = 10.0
    stall_s: float = 60.0
    total_s: float | None = None
    bytes: int | None = None


class TransferError(MissingDataError):
    """A file that did not come; the message is one sentence and names the host.

    Attributes:
        host: whose answer, or silence, it was.
        lasting: whether the host would do the same with its next file.
    """

    def __init__(self, message: str, host: str, *, lasting: bool = False) -> None:
        super().__init__(message, hint="try later, or put the file into DGBENCH_DATA")
        self.host, self.lasting = host, lasting


def transfer(
    url: str,
    target: Path,
    max_bytes: int,
    limits: TransferLimits,
    progress: Callable[[int, int | None], None] | None = None,
) -> None:
    """Write what an address answers to `target`, byte by byte as it is sent.

    Args:
        url: http or https. Up to `MAX_REDIRECTS` redirects are followed, none of them to another
            scheme, but from http to https.
        target: file that is made or overwritten. It may hold a part of the file where this raises.
        max_bytes: most bytes that are written.
        limits: of time and size.
        progress: told the bytes so far and in all (None if not announced).

    Raises:
        TransferError: no answer, a status other than 200, a web page, too large, too slow, cut.
        OSError: the disk cannot be written.
    """
    import requests
    import urllib3

    begin, host = time.monotonic(), host_of(url)
    most = max_bytes if limits.bytes is None else min(max_bytes, limits.bytes)
    done, total = 0, None
    try:
        with _open(url, limits) as answer:
            host = host_of(answer.url)
            total = _announced(answer)
            if total is not None and total > most:
                raise TransferError(f"{host} sends {_size(total)}, more than {_size(most)}", host)
            if answer.headers.get("content-type", "").lower().startswith("text/html"):
                raise _page(host)
            # read1 hands over what is there, so that a slow sender meets the clock; an old urllib3
            # has none, and there the clock is only looked at after every 4 KB.
            raw = answer.raw
            raw.decode_content = False
            part = raw.read1 if hasattr(raw, "read1") else lambda _: raw.read(1 << 12)
            with open(target, "wb") as out:
                while data := part(_CHUNK):
                    if done == 0 and _PAGE.match(data):
                        raise _page(host)
                    done += len(data)
                    if done > most:
                        raise TransferError(f"{host} sends more than {_size(most)}", host)
                    if limits.total_s is not None and time.monotonic() - begin > limits.total_s:
                        of = "" if total is None else f" of {_size(total)}"
                        raise TransferError(
                            f"{host}: {_size(done)}{of} in {limits.total_s:g} s, the time limit",
                            host,
                            lasting=True,
                        )
                    out.write(data)
                    if progress is not None:
                        progress(done, total)
    except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
        why = failure(error, limits)
        if done and why == _CUT:
            raise _cut(host, done, total) from None
        raise TransferError(f"{host}: {why}", host, lasting=True) from None


def unreachable(urls: Iterable[str], seconds: float) -> dict[str, str]:
    """Hosts of these addresses that cannot be connected to, with the reason.

    All are tried at once, each once, its proxy in its place where the environment names one; a
    host that has not answered after so many seconds, its name's look-up included, does not answer.
    """
    hosts = {host_of(url): _address(url) for url in urls}
    reasons: dict[tuple[str, int], str] = {}

    def probe(address: tuple[str, int]) -> None:
        try:
            socket.create_connection(address, seconds).close()
            reasons[address] = ""
        except OSError as error:
            reasons[address] = failure(error, TransferLimits(connect_s=seconds))

    threads = [
        # A look-up cannot be stopped; what is still at it is left behind.
        threading.Thread(target=probe, args=(address,), daemon=True)
        for address in set(hosts.values())
    ]
    for thread in threads:
        thread.start()
    end = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    silent = f"no answer within {seconds:g} s"
    found = {host: reasons.get(address, silent) for host, address in hosts.items()}
    return {host: reason for host, reason in found.items() if reason}


def redirected(url: str, location: str) -> str:
    """Where an address redirects to. TransferError for another scheme, but from http to https."""
    target = urljoin(url, location)
    schemes = urlsplit(url).scheme, urlsplit(target).scheme
    if schemes[0] != schemes[1] and schemes != ("http", "https"):
        host = host_of(url)
        raise TransferError(
            f"{host} redirects from {schemes[0]} to {schemes[1]}, which is refused", host
        )
    return target


def host_of(url: str) -> str:
    """The host of an address, without port and password."""
    return urlsplit(url).hostname or url


def failure(error: BaseException, limits: TransferLimits) -> str:
    """Why a connection failed, in words that are the same for all hosts it happened to."""
    chain = list(_chain(error))
    if any(type(one).__name__ == "ProxyError" for one in chain):
        return "the proxy does not let it through"
    if any(isinstance(one, socket.gaierror) for one in chain):
        return "the name cannot be resolved"
    if any(isinstance(one, ssl.SSLError) for one in chain):
        return "its certificate is not accepted"
    if any(isinstance(one, ConnectionRefusedError) for one in chain):
        return "the connection is refused"
    if any(isinstance(o, OSError) and o.errno in _NO_ROUTE for o in chain):
        return "there is no route to it"
    if any(type(one).__name__ in ("ConnectTimeout", "ConnectTimeoutError") for one in chain):
        return f"no answer within {limits.connect_s:g} s"
    if any(type(one).__name__ in ("ReadTimeout", "ReadTimeoutError") for one in chain):
        return f"not a byte for {limits.stall_s:g} s"
    if any(isinstance(one, TimeoutError) for one in chain):
        return f"no answer within {limits.connect_s:g} s"
    return _CUT


@contextlib.contextmanager
def _open(url: str, limits: TransferLimits) -> Iterator[Any]:
    """The answer of an address with status 200, after redirects that may be followed."""
    import requests

    for _ in range(MAX_REDIRECTS + 1):
        with requests.get(
            url,
            stream=True,
            timeout=(limits.connect_s, limits.stall_s),
            allow_redirects=False,
            headers={"Accept-Encoding": "identity", "User-Agent": "dgbench"},
        ) as answer:
            if not answer.is_redirect:
                if answer.status_code != 200:
                    said = f"{answer.status_code} {answer.reason or ''}".strip()
                    raise TransferError(f"{url} cannot be fetched: {said}", host_of(url))
                yield answer
                return
            url = redirected(url, answer.headers["location"])
    raise TransferError(f"{host_of(url)} redirects more than {MAX_REDIRECTS} times", host_of(url))


def _announced(answer: Any) -> int | None:
    length = answer.headers.get("content-length", "")
    return int(length) if length.isdecimal() else None


def _address(url: str) -> tuple[str, int]:
    """Whom a request for an address connects to: its host, or the proxy of the environment."""
    from requests.utils import get_environ_proxies, select_proxy

    proxy = select_proxy(url, get_environ_proxies(url)) or ""
    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}") if proxy else urlsplit(url)
    port = parts.port or {"https": 443, "http": 80}.get(parts.scheme, 1080)
    return parts.hostname or "", port


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error, what it wraps and what caused it, each once."""
    seen: list[BaseException] = []
    left = [error]
    while left:
        one = left.pop()
        if not isinstance(one, BaseException) or any(one is other for other in seen):
            continue
        seen.append(one)
        left += [one.__cause__, one.__context__, getattr(one, "reason", None), *one.args]
    return iter(seen)


def _page(host: str) -> TransferError:
    return TransferError(
        f"{host} answers with a web page in place of the file: a login page of a proxy, or the "
        "address has moved",
        host,
    )


def _cut(host: str, done: int, total: int | None) -> TransferError:
    of = "" if total is None else f" of {total:,}"
    return TransferError(f"the connection to {host} was cut after {done:,}{of} bytes", host)


def _size(count: int) -> str:
    return f"{count:,} bytes" if count < 10**6 else f"{count / 1e6:,.1f} MB"
