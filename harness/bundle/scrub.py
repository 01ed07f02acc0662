"""Scrubber: texts of a run without paths, users, hosts and addresses of the machine it ran on."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

PATH: Final = "<path>"
NAME: Final = "<name>"
ADDRESS: Final = "<address>"
MIN_NAME: Final = 3
"""Letters of a private name; shorter ones cannot be told from words and parameters."""
GENERIC: Final = frozenset(
    (
        "root", "user", "admin", "localhost", "localdomain", "local", "ubuntu", "debian", "fedora",
        "centos", "runner", "home", "host", "node", "docker", "container", "build", "builder",
        "jovyan", "nobody", "test", "guest", "worker", "machine", "server", "default", "linux",
    )
)  # fmt: skip
"""Names of users and hosts that name nobody, and may be words of a text."""

_PATH = re.compile(
    r"""file:/\S*"""
    r"""|(?<![\w~])~(?:[A-Za-z_][\w.-]*)?/\S*"""
    r"""|(?<![A-Za-z0-9])[A-Za-z]:[\\/][^\s"'<>|]*"""
    r"""|\\\\[\w.-]+\\[^\s"'<>|]*"""
    r"""|(?<![\w.:/])//[\w.-]+/[^\s"']*"""
    r"""|(?<![\w./<>])/(?:[\w.+@%-]+/)+[\w.+@%-]*"""
    r"""|(?<![\w./<>])/(?:root|home|Users|tmp|scratch|mnt|data)(?![\w.-])"""
)
_MAIL = re.compile(r"[\w.+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+")
_PRIVATE_IP = re.compile(
    r"(?<![\d.])(?:10\.\d{1,3}|192\.168|172\.(?:1[6-9]|2\d|3[01]))\.\d{1,3}\.\d{1,3}(?![\d.])"
)
_OUT = re.compile(r" --out[ =]\S+")
_KERNEL = re.compile(r"^(Linux \d+(?:\.\d+)*)\S*")
_VERSIONS: Final = ("packages", "libraries")
"""Mappings from packages to versions; a version of four numbers is no address."""


class Scrubber:
    """Replacement of private words in JSON values.

    Attributes:
        folders: absolute paths that may hold spaces, such as the home directory, longest first.
        names: private words, replaced where they stand alone, in any case of letters.
    """

    def __init__(self, names: Iterable[str] = (), folders: Iterable[str] = ()) -> None:
        self.folders = sorted({f for f in folders if len(f) > 1}, key=lambda f: (-len(f), f))
        self.names = sorted({n for n in names if len(n) >= MIN_NAME}, key=lambda n: (-len(n), n))
        words = "|".join(map(re.escape, self.names))
        self._names = (
            re.compile(rf"(?<![A-Za-z0-9])(?:{words})(?![A-Za-z0-9])", re.I) if words else None
        )

    @classmethod
    def of_machine(cls, run: Path, hide: Sequence[str] = (), spare: Iterable[str] = ()) -> Scrubber:
        """The scrubber for a run of this machine.

        Args:
            run: the run's folder. hide: further private words. spare: words of dgbench's own, such
                as names of datasets, that are no names of this machine.
        """
        spared = {word.lower() for word in spare} | GENERIC
        names = {name for name in _names_here() if name.lower() not in spared}
        folders = [str(Path.home()), os.getcwd(), str(run.resolve())]
        return cls({*names, *hide}, [f for f in folders if f != "/"])

    def text(self, text: str, *, version: bool = False) -> str:
        """A text without private words."""
        for folder in self.folders:
            text = re.sub(re.escape(folder) + r"(?![\w-])(?:[\\/][\w.+@%-]*)*", PATH, text)
        text = _MAIL.sub(ADDRESS, _PATH.sub(PATH, text))
        if not version:
            text = _PRIVATE_IP.sub(ADDRESS, text)
        return self._names.sub(NAME, text) if self._names else text

    def clean(self, value: Any, spare: Sequence[str] = (), *, version: bool = False) -> Any:
        """A JSON value whose texts and keys hold no private words.

        Args:
            spare: keys of the outermost mapping whose values stay as they are.
        """
        if isinstance(value, str):
            return self.text(value, version=version)
        if isinstance(value, dict):
            return {
                self.text(k): v if k in spare else self.clean(v, version=version or k in _VERSIONS)
                for k, v in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.clean(v, version=version) for v in value]
        return value

    def left(self, value: Any, *, version: bool = False) -> Iterator[str]:
        """Texts of a JSON value that still hold a private word."""
        if isinstance(value, str):
            if self.text(value, version=version) != value:
                yield value
        elif isinstance(value, dict):
            for key, one in value.items():
                yield from self.left(key)
                yield from self.left(one, version=version or key in _VERSIONS)
        elif isinstance(value, list | tuple):
            for one in value:
                yield from self.left(one, version=version)


def clean_info(info: Mapping[str, Any], scrubber: Scrubber) -> dict[str, Any]:
    """Contents of run.json without private words; the option that names a folder goes."""
    found = dict(info)
    if isinstance(found.get("command"), str):
        found["command"] = _OUT.sub("", found["command"])
    return scrubber.clean(found)


def clean_facts(facts: Mapping[str, Any], scrubber: Scrubber) -> dict[str, Any]:
    """One provenance without private words; the suffix of a kernel's name may name its builder."""
    found = scrubber.clean(dict(facts))
    if isinstance(system := found.get("machine", {}).get("system"), str):
        found["machine"]["system"] = _KERNEL.sub(r"\1", system)
    return found


def _names_here() -> set[str]:
    """Names of the user and of the host, whole and in parts."""
    names = {os.environ.get(key, "") for key in ("USER", "LOGNAME", "USERNAME", "SUDO_USER")}
    names |= {Path.home().name, os.uname().nodename if hasattr(os, "uname") else ""}
    names |= {socket.gethostname(), os.environ.get("HOSTNAME", "")}
    with contextlib.suppress(OSError, KeyError):  # a user without an entry, as in containers
        names.add(getpass.getuser())
    with contextlib.suppress(ImportError, KeyError):
        import pwd

        names.add(pwd.getpwuid(os.getuid()).pw_gecos.partition(",")[0])
    return {part for name in names if name for part in (name, *name.split("."))}
