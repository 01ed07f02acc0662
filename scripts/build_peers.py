"""Build the contenders that are released as source only, once, and install them here.

Usage: python scripts/build_peers.py [--into FOLDER] [--no-build]

torch-scatter and tglite are compiled against the torch of the interpreter that runs this, six
minutes each on one core. Their wheels are kept in a folder named after Python and torch, so that
the next environment installs them in a second. `--no-build` installs what is kept and builds
nothing. A contender that does not build is named with its reason; the others go on.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Peer:
    """A source release.

    Attributes:
        name, version: as the package index knows them.
        replace: (file, found, wanted) applied to a private copy before it is compiled.
    """

    name: str
    version: str
    replace: tuple[tuple[str, str, str], ...] = ()

    @property
    def stem(self) -> str:
        """Prefix of its wheel's file name."""
        return self.name.replace("-", "_")


PEERS = (
    Peer("torch-scatter", "2.1.2"),
    # It imports torch_scatter, and asks for C++14, which the headers of torch have left behind.
    Peer("tglite", "0.0.2", (("setup.py", "-std=c++14", "-std=c++20"),)),
)


def default_folder() -> Path:
    """Where wheels for this interpreter and torch are kept."""
    cache = os.environ.get("DGBENCH_CACHE") or Path.home() / ".cache" / "dgbench"
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    return Path(cache) / "peers" / f"{python}-torch-{importlib.metadata.version('torch')}"


def pip(*arguments: str, **environment: str) -> None:
    """Run pip of this interpreter; its output goes on only if it fails.

    Raises:
        RuntimeError: with the last lines that it printed.
    """
    command = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", *arguments]
    done = subprocess.run(
        command, env=os.environ | environment, text=True, errors="replace", capture_output=True
    )
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-12:])
        raise RuntimeError(f"pip {' '.join(arguments)} failed:\n{last}")


def unpack_source(peer: Peer, folder: Path) -> Path:
    """Fetch a source release into `folder`, unpack it and apply its replacements."""
    pip(
        "download", "--no-deps", "--no-build-isolation", "--no-binary", peer.name,
        "--dest", str(folder), f"{peer.name}=={peer.version}",
    )  # fmt: skip
    archive = next(folder.glob("*.tar.gz"))
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    source = next(path for path in folder.iterdir() if path.is_dir())
    for name, found, wanted in peer.replace:
        text = (source / name).read_text()
        if found not in text:
            raise RuntimeError(f"{peer.name} {peer.version}: {name} no longer has '{found}'")
        (source / name).write_text(text.replace(found, wanted))
    return source


def build_wheel(peer: Peer, into: Path) -> Path:
    """Compile a peer and keep its wheel in `into`, whole or not at all."""
    with tempfile.TemporaryDirectory() as scratch:
        source = unpack_source(peer, Path(scratch))
        built = Path(scratch) / "built"
        pip(
            "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(built), str(source),
            FORCE_ONLY_CPU="1", MAX_JOBS=os.environ.get("MAX_JOBS", "1"),
        )  # fmt: skip
        wheel = next(built.glob("*.whl"))
        into.mkdir(parents=True, exist_ok=True)
        half = into / f"{wheel.name}.part"
        shutil.move(wheel, half)
        return half.rename(into / wheel.name)


def kept_wheel(peer: Peer, folder: Path) -> Path | None:
    """The wheel of a peer if it was built before."""
    return next(iter(sorted(folder.glob(f"{peer.stem}-{peer.version}-*.whl"))), None)


def main() -> int:
    """Build what is missing, install what there is; 1 if any peer is not to be had."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--into", type=Path, help="folder of wheels; by default in DGBENCH_CACHE")
    parser.add_argument("--no-build", action="store_true", help="install kept wheels only")
    arguments = parser.parse_args()
    folder = arguments.into or default_folder()
    missing = False
    for peer in PEERS:
        wheel = kept_wheel(peer, folder)
        if wheel is None and arguments.no_build:
            continue
        try:
            if wheel is None:
                print(f"{peer.name} {peer.version}: compiling, some six minutes", flush=True)
                wheel = build_wheel(peer, folder)
            pip("install", "--no-deps", str(wheel))
            print(f"{peer.name} {peer.version}: installed from {wheel}", flush=True)
        except (RuntimeError, StopIteration, OSError, tarfile.TarError) as error:
            missing = True
            print(f"{peer.name} {peer.version}: {error}", file=sys.stderr, flush=True)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
