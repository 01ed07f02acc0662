"""Record of files accepted without a known hash, so that later changes of them are detected.

A card without a hash cannot say what a publisher should send. What came the first time, with
`--trust`, is then what must come ever after: `trusted.json` in the download folder keeps its hash.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from dgbench.datasets.sources.locate import download_dir
from dgbench.runtime.documents import decode_json, write_whole
from dgbench.runtime.errors import DataError


class Pin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a file when it was accepted, and where it came from."""

    sha256: str
    url: str


def pins_file() -> Path:
    """Where pins are kept."""
    return download_dir() / "trusted.json"


def pins() -> dict[str, Pin]:
    """Every pin by the path of its file. DataError where the file of pins is damaged."""
    try:
        return decode_json(pins_file().read_bytes(), dict[str, Pin])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.MsgspecError) as error:
        raise DataError(
            f"{pins_file()} cannot be read: {error}",
            hint="remove it to forget which downloads were accepted without a hash",
        ) from None


def pin(path: str, sha256: str, url: str) -> None:
    """Write down what was accepted; what stood there for this file is replaced."""
    from filelock import FileLock

    target = pins_file()
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(target.parent / ".trusted.lock"):  # two fetches at once keep both pins
        kept = pins() | {path: Pin(sha256, url)}
        write_whole(target, msgspec.json.format(msgspec.json.encode(kept), indent=1))


def check_pin(file: Path, path: str, found: str) -> None:
    """Compare a downloaded file whose card has no hash with what was accepted first.

    Files in `DGBENCH_DATA` are their owner's and have no pin.

    Raises:
        DataError: it is not what was accepted.
    """
    if not file.absolute().is_relative_to(download_dir().absolute()):
        return
    held = pins().get(path)
    if held is not None and held.sha256 != found:
        raise DataError(
            f"{path} is not what was accepted from {held.url}: found sha256 {found}, accepted "
            f"was {held.sha256}",
            hint=f"if the publisher has changed it, remove the file and its line in {pins_file()}",
        )
