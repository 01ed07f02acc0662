"""The virtual environment that all sessions of nox which need dgbench share.

    python scripts/environment.py [--into FOLDER]

Made once, kept in `.nox/dgbench`: the tools of the build, one pinned torch, what dgbench and its
tests ask for, the contenders that have a release for this machine, and dgbench itself with its
operators. The operators compile while packages are downloaded and unpacked. What has not changed
since the last time is left alone: packages as long as the lists of requirements are the same,
dgbench as long as its sources are.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MIN_PYTHON = (3, 10)

# One torch for every session. The package itself supports 2.6 and newer; set DGBENCH_TORCH to
# try another. bound: not a break: numbers of two sessions can be compared.
TORCH = os.environ.get("DGBENCH_TORCH", "torch==2.13.0")
BUILD = ["scikit-build-core>=0.10", "nanobind>=2.4", "ninja", "cmake>=3.25"]
CONTENDERS = [
    # bound: dgl 2 does not load beside today's torch, see pyproject.toml
    "dgl==1.1.3",
    # partitioners of the vertex-partition baseline; without them it parts by label propagation
    "pymetis>=2025.2",
    "kahypar>=1.3.5",
]
# Released PyG-Temporal: pure Python; its only hard need beyond PyG is a type of torch-sparse, which
# would build for ten minutes, so its dependencies are left out and the type is stood in.
# bound: not a break: a contender is a release that has a name.
WITHOUT_DEPENDENCIES = "torch-geometric-temporal==0.56.2"

# Large packages that most sessions import.
IMPORTED = [
    "torch", "torch_geometric.nn", "pandas", "pyarrow.parquet", "scipy.sparse", "scipy.stats",
    "matplotlib.pyplot", "typer", "rich.console", "pytest", "hypothesis",
]  # fmt: skip

SOURCES = ["src", "kernels_cuda", "datasets", "runtime", "models", "lab", "systems", "harness"]
SOURCE_FILES = ["pyproject.toml", "CMakeLists.txt", "README.md", "LICENSE"]
# Environment variables that a compiler or the build reads.
BUILD_VARIABLES = ("CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS", "CMAKE_", "SKBUILD_", "DGBENCH_")
NOT_OF_THE_BUILD = {
    "DGBENCH_DATA", "DGBENCH_RESULTS", "DGBENCH_CACHE", "DGBENCH_OFFLINE", "DGBENCH_FUSED",
    "DGBENCH_SETTING",
}  # fmt: skip


class SetupError(RuntimeError):
    """The environment cannot be made here; the message says what helps."""


class Environment:
    """Virtual environment in a folder, with a record of what was installed into it.

    Attributes:
        folder: of the environment. record: its JSON file with the fingerprints of requirements
            and sources that were installed; missing parts were never finished.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.record = folder / "dgbench-install.json"

    @property
    def python(self) -> Path:
        """Interpreter of the environment."""
        if os.name == "nt":
            return self.folder / "Scripts" / "python.exe"
        return self.folder / "bin" / "python"

    def installed(self) -> dict[str, str]:
        """The record; empty where there is none or it cannot be read."""
        try:
            known = json.loads(self.record.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return known if isinstance(known, dict) else {}

    def remember(self, **parts: str) -> None:
        """Add fingerprints to the record, all at once or not at all."""
        text = json.dumps(self.installed() | parts, indent=1)
        part = self.record.with_suffix(".part")
        part.write_text(text, encoding="utf-8")
        part.replace(self.record)

    def create(self) -> None:
        """Make the environment anew where it is missing or of another Python."""
        wanted = python_fingerprint()
        if self.python.exists() and self.installed().get("python") == wanted:
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        maker = "virtualenv"  # comes with nox, and needs no ensurepip, which Debian leaves out
        try:
            import virtualenv  # noqa: F401
        except ImportError:
            maker = "venv"
        call([sys.executable, "-m", maker, str(self.folder)])
        self.remember(python=wanted)

    def pip(self, *arguments: str) -> list[str]:
        """Command line of this environment's pip."""
        return [str(self.python), "-m", "pip", "--disable-pip-version-check", *arguments]

    def install(self, *requirements: str) -> None:
        """Install packages.

        Raises:
            SetupError: with pip's own last words.
        """
        # Three quarters of the time would go into bytecode of modules that nothing imports; Python
        # writes that of the others when it first needs it.
        call(self.pip("install", "--quiet", "--no-compile", *requirements))


def call(command: Sequence[str]) -> None:
    """Run a command; its output is shown only if it fails, and then raised."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT)
    if done.returncode:
        words = done.stdout.decode(errors="replace").strip()
        raise SetupError(f"{' '.join(command[:6])} ... failed:\n{words[-3000:]}")


def python_fingerprint() -> str:
    """Version and place of the interpreter that an environment is made of."""
    return f"{platform.python_implementation()} {platform.python_version()} {sys.base_prefix}"


def project() -> dict:
    """The [project] table of pyproject.toml."""
    try:
        import tomllib
    except ImportError:  # Python 3.10, where nox brings it
        import tomli as tomllib
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def requirements() -> list[str]:
    """Everything that must be there: torch, what dgbench asks for, what its tests ask for."""
    table = project()
    return [TORCH, *table["dependencies"], *table["optional-dependencies"]["test"]]


def digest(*parts: object) -> str:
    """Fingerprint of values that have a JSON form."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def sources_fingerprint(root: Path = ROOT) -> str:
    """Fingerprint of what dgbench is built from: files, variables of the compilers, nvcc."""
    paths = [root / name for name in SOURCE_FILES]
    for folder in SOURCES:
        paths += (root / folder).rglob("*")
    files = []
    for path in sorted(paths):
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".so":
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            files.append([path.relative_to(root).as_posix(), content])
    variables = sorted(
        f"{name}={value}"
        for name, value in os.environ.items()
        if name.startswith(BUILD_VARIABLES) and name not in NOT_OF_THE_BUILD
    )
    return digest(files, variables, shutil.which("nvcc"))


def check_machine() -> None:
    """Stop before anything is downloaded where it could not be used.

    Raises:
        SetupError: Python is too old, or there is no C++ compiler.
    """
    if sys.version_info < MIN_PYTHON:
        raise SetupError(
            f"dgbench needs Python {MIN_PYTHON[0]}.{MIN_PYTHON[1]} or newer, "
            f"and {sys.executable} is {platform.python_version()}"
        )
    if not (os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")):
        raise SetupError(
            "no C++ compiler found (g++, clang++ or CXX); the operators are compiled on install.\n"
            "  Debian, Ubuntu: apt-get install g++   Fedora: dnf install gcc-c++   "
            "macOS: xcode-select --install"
        )


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file, so that two sessions that start at once prepare one after the other."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            import fcntl
        except ImportError:  # Windows has no such lock
            yield
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("environment: another session prepares it, waiting", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def install_packages(environment: Environment) -> None:
    """Install all that is downloaded but the build's tools, in one call of pip if that succeeds.

    A contender without a release for this machine becomes a row that says so: where the one call
    fails, what is needed is installed alone and then contender by contender.
    """
    missing = []
    try:
        environment.install(*requirements(), *CONTENDERS)
    except SetupError:
        environment.install(*requirements())
        for wanted in CONTENDERS:
            try:
                environment.install(TORCH, wanted)
            except SetupError:
                missing.append(wanted)
    try:
        environment.install("--no-deps", WITHOUT_DEPENDENCIES)
    except SetupError:
        missing.append(WITHOUT_DEPENDENCIES)
    for wanted in missing:
        print(f"environment: contender {wanted} does not install here and is left out", flush=True)
    # those that `nox -s peers` compiled, if it was ever run
    build_peers = [str(environment.python), "scripts/build_peers.py", "--no-build"]
    subprocess.run(build_peers, cwd=ROOT, check=False)


def keep_bytecode(environment: Environment) -> None:
    """Import what every session imports, so that its bytecode lies there for the first process."""
    variables = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    importing = [str(environment.python), "-c", f"import {', '.join(IMPORTED)}"]
    subprocess.run(importing, env=variables, capture_output=True, check=False)


def prepare(folder: Path) -> bool:
    """Bring the environment up to date; returns whether anything had to be done.

    Raises:
        SetupError: something needed is missing, did not install or did not compile.
    """
    check_machine()
    environment = Environment(folder)
    environment.create()
    packages = digest(requirements(), BUILD, CONTENDERS, WITHOUT_DEPENDENCIES)
    sources = sources_fingerprint()
    known = environment.installed()
    new_packages = known.get("packages") != packages
    if not new_packages and known.get("sources") == sources:
        return False
    if new_packages:
        environment.install(*BUILD)
    with tempfile.TemporaryDirectory(prefix="dgbench-wheel-") as wheels:
        log = Path(wheels) / "build.log"
        with log.open("wb") as output:
            build = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", wheels, str(ROOT)]
            compiling = subprocess.Popen(
                environment.pip(*build), stdout=output, stderr=subprocess.STDOUT, cwd=ROOT
            )
        try:
            if new_packages:
                print("environment: installing packages, compiling the operators", flush=True)
                install_packages(environment)
                environment.remember(packages=packages)
                keep_bytecode(environment)  # the operators still compile
            else:
                print("environment: sources changed, building dgbench again", flush=True)
            failed = compiling.wait()
        finally:
            if compiling.poll() is None:
                compiling.terminate()
                compiling.wait()
        if failed:
            words = log.read_text(encoding="utf-8", errors="replace")
            raise SetupError(f"dgbench does not build here:\n{words[-6000:]}")
        built = [str(path) for path in Path(wheels).glob("*.whl")]
        environment.install("--no-deps", "--force-reinstall", *built)
    environment.remember(sources=sources)
    return True


def main() -> int:
    """Parse the arguments and prepare the environment; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--into", type=Path, default=ROOT / ".nox" / "dgbench", metavar="FOLDER")
    folder = parser.parse_args().into.resolve()
    begin = time.monotonic()
    try:
        with locked(folder.with_suffix(".lock")):
            changed = prepare(folder)
    except SetupError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if changed:
        print(f"environment: ready after {time.monotonic() - begin:.0f} s ({folder})", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
