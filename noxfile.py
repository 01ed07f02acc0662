"""What a person runs: `nox -s reproduce -- pipad`, `nox -s tests`, and the checks around them.

Each session makes its own environment and builds the operators in it. Nothing needs a GPU.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

if sys.version_info < (3, 10):  # noqa: UP036  (nox itself still runs there)
    sys.exit(
        "error: dgbench needs Python 3.10 or newer, and nox runs on Python {}.{}. "
        "Start it with a newer one, as in: python3.12 -m nox".format(*sys.version_info[:2])
    )

import nox

nox.needs_version = ">=2024.4"
nox.options.sessions = ["lint", "tests"]
nox.options.reuse_existing_virtualenvs = True
nox.options.error_on_missing_interpreters = True

# One torch for every environment. The package itself supports 2.6 and newer; set DGBENCH_TORCH to
# try another. bound: not a break: numbers of two sessions can be compared.
TORCH = os.environ.get("DGBENCH_TORCH", "torch==2.13.0")
BUILD = ["scikit-build-core>=0.10", "nanobind>=2.4", "ninja", "cmake>=3.25"]
LINTED = [
    "src", "kernels_cuda", "datasets", "runtime", "models", "systems", "harness",
    "benchmarks", "scripts", "tests", "docs/hooks", "noxfile.py",
]  # fmt: skip
CONTENDERS = [
    # released PyG-Temporal: pure Python; its only hard need beyond PyG is a type of torch-sparse,
    # which would build for ten minutes, so its dependencies are left out and the type is stood in.
    # bound: not a break: a contender is a release that has a name.
    ["--no-deps", "torch-geometric-temporal==0.56.2"],
    # bound: dgl 2 does not load beside today's torch, see pyproject.toml
    ["dgl==1.1.3"],
    # partitioners of the vertex-partition baseline; without them it parts by label propagation
    ["pymetis>=2025.2"],
    ["kahypar>=1.3.5"],
]


def _need_compiler(session: nox.Session) -> None:
    """Stop early, with the command that helps, where there is no C++ compiler."""
    if not (os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")):
        session.error(
            "no C++ compiler found (g++, clang++ or CXX); the operators are compiled on install.\n"
            "  Debian, Ubuntu: apt-get install g++   Fedora: dnf install gcc-c++   "
            "macOS: xcode-select --install"
        )


def _install(session: nox.Session, *, contenders: bool = False, extras: str = "test") -> None:
    """Torch first (pinned), then the package with its operators, then contenders."""
    _need_compiler(session)
    session.install(TORCH)
    # The build runs in this environment: no second download of the build tools on every change.
    session.install(*BUILD)
    session.install("--no-build-isolation", f".[{extras}]")
    if contenders:
        for wanted in CONTENDERS:
            # a contender that does not install here becomes a row that says so
            session.run("python", "-m", "pip", "install", "-q", *wanted, success_codes=[0, 1])
        # those that `nox -s peers` compiled, if it was ever run
        session.run("python", "scripts/build_peers.py", "--no-build", success_codes=[0, 1])


@nox.session
def tests(session: nox.Session) -> None:
    """The whole test suite on the CPU (CUDA tests skip themselves without a device)."""
    _install(session, contenders=True)
    # One worker a core leaves nothing to the processes that the runner's tests start.
    workers = ["-n", "2"] if (os.cpu_count() or 1) > 1 else []
    # Two workers with two threads each would wait for each other; tests that are about threads
    # ask for theirs.
    session.env.setdefault("OMP_NUM_THREADS", "1")
    session.run("python", "-m", "pytest", *workers, *session.posargs)


@nox.session
def search(session: nox.Session) -> None:
    """Draw new examples for the property tests: nox -s search -- --minutes 120 [--seed S] [TESTS].

    `nox -s tests` draws the same examples every time. What this finds lies in build/search; it ends
    with 1 where that is something.
    """
    _install(session, contenders=True)
    session.env.setdefault("OMP_NUM_THREADS", "1")
    session.run("python", "scripts/search_examples.py", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """ruff: lint and format check."""
    session.install("ruff>=0.6")
    session.run("ruff", "check", *LINTED)
    session.run("ruff", "format", "--check", *LINTED)


@nox.session
def reproduce(session: nox.Session) -> None:
    """Run papers' experiments and end with verdicts: nox -s reproduce -- pipad [--preset ...]."""
    _install(session, contenders=True)
    session.run("dgbench", "reproduce", *session.posargs)


@nox.session
def peers(session: nox.Session) -> None:
    """Compile the contenders without binary releases (tglite), once; other sessions use them."""
    _need_compiler(session)
    session.install(TORCH, "numpy", "setuptools", "wheel")
    session.run("python", "scripts/build_peers.py", *session.posargs)
    session.run("python", "-c", "import tglite; print('tglite', tglite.__file__)")


@nox.session
def bench(session: nox.Session) -> None:
    """pytest-benchmark over the compiled operators: time, rate and share of a limit of each.

    Compares with the newest saved session of this kind of machine and keeps nothing, unless asked:
    nox -s bench -- --benchmark-save=baseline, or --benchmark-compare-fail=median:10%.
    """
    _install(session)
    session.run(
        "python", "-m", "pytest", "benchmarks/operators", "--benchmark-only", "--benchmark-quiet",
        "--benchmark-compare", "-p", "no:xdist", *session.posargs,
    )  # fmt: skip


@nox.session
def docs(session: nox.Session) -> None:
    """Build the site of docs/ into build/docs; a broken link or a page without a place is refused.

    Needs neither torch nor a compiler: the reference is read from the sources.
    """
    plain = nox.project.load_toml("pyproject.toml")
    session.install(*plain["project"]["optional-dependencies"]["docs"])
    session.run("mkdocs", "build", "--strict", "--quiet", *session.posargs)
    session.log("the site: build/docs/index.html")


@nox.session
def asv(session: nox.Session) -> None:
    """Count what every system does, refuse counters that grew, publish the history's pages.

    Posargs go to a further `asv run`: nox -s asv -- --bench time_.
    """
    _install(session)
    session.install("asv>=0.6.6", "virtualenv")
    session.run("asv", "machine", "--yes", silent=True)
    session.run("asv", "check", "--python=same")
    commit = ""
    if shutil.which("git"):
        ask = ["git", "rev-parse", "HEAD"]
        commit = session.run(*ask, external=True, silent=True, success_codes=[0, 128]).strip()
    if len(commit) != 40:
        session.warn("no commit to write counts down for; the tests compare them all the same")
        return
    run = ["asv", "run", "--python=same", "--record-samples", "--set-commit-hash", commit]
    # A benchmark that fails is asv's exit code 2; the comparison names it.
    session.run(*run, "--bench", r"^(counters|operators)\..*track_", success_codes=[0, 2])
    session.run("dgbench", "compare", "benchmarks/asv/baseline.json", ".asv/results")
    if session.posargs:
        session.run(*run, *session.posargs)
    session.run("asv", "publish", "--no-pull")


@nox.session
def figures(session: nox.Session) -> None:
    """Draw the figures and pages of a finished run again: nox -s figures -- [RUN]."""
    _install(session)
    session.run("dgbench", "report", *session.posargs)


@nox.session
def compile_cuda(session: nox.Session) -> None:
    """Compile the CUDA operators for all supported architectures; needs nvcc, no device."""
    _need_compiler(session)
    if not (shutil.which("nvcc") or Path("/usr/local/cuda/bin/nvcc").exists()):
        session.skip("no nvcc here; the CUDA operators are compiled where the toolkit is")
    session.install(*BUILD)
    build = Path(session.create_tmp()) / "cuda"
    session.run(
        "cmake", "-S", ".", "-B", str(build), "-G", "Ninja", "-DDGBENCH_CUDA=all",
        f"-DPython_EXECUTABLE={session.virtualenv.location}/bin/python",
    )  # fmt: skip
    session.run("cmake", "--build", str(build), "--target", "_cuda")
    # It must import where there is no driver, and say so.
    found = next(build.rglob("_cuda*.so"))
    code = "import _cuda; print(_cuda.build_info())"
    session.run("python", "-c", code, env={"PYTHONPATH": str(found.parent)})


@nox.session
def gpu(session: nox.Session) -> None:
    """Build for the device that is here, run the CUDA tests, measure operators, race on it.

    Rows of the operators lie in build/gpu. scripts/gpu_run.sh does the same without a network and
    in a given time, and more: sanitizers, and a graph of 1.47 billion edges.
    """
    _install(session, contenders=True)
    session.run("dgbench", "doctor")
    session.run("python", "-m", "pytest", "-m", "cuda", "tests", *session.posargs)
    out = Path("build/gpu")
    out.mkdir(parents=True, exist_ok=True)
    kernels, rows = str(out / "kernels.jsonl"), str(out / "roofline.jsonl")
    ask = "import torch; print('sm_%d%d' % torch.cuda.get_device_capability())"
    arch = session.run("python", "-c", ask, silent=True).split()[-1]
    session.run("python", "scripts/kernel_resources.py", "--arch", arch, "--out", kernels)
    session.run("python", "scripts/gpu_roofline.py", "--resources", kernels, "--out", rows)
    for part in ("ceilings", "ledger"):
        session.run("python", f"scripts/gpu_{part}.py", "--out", str(out / f"{part}.jsonl"))
    session.run("dgbench", "reproduce", "--device", "cuda")


@nox.session
def audit(session: nox.Session) -> None:
    """Known vulnerabilities of all that dgbench installs; where no database answers, it says so.

    Needs no compiler: what is audited is what dgbench and its tests ask for.
    """
    project = nox.project.load_toml("pyproject.toml")["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["test"]]
    session.install(TORCH, *wanted, "pip-audit>=2.7")
    session.run("python", "scripts/audit.py", *session.posargs)


@nox.session
def sanitize(session: nox.Session) -> None:
    """The operators' tests under ASan, UBSan and TSan: nox -s sanitize -- [address|thread|all].

    Each checked build takes minutes; `--quick` is what CI has time for. What is missing for one of
    them, such as clang for `thread`, is said in the table.
    """
    _need_compiler(session)
    project = nox.project.load_toml("pyproject.toml")["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["test"]]
    session.install(TORCH, *wanted, *BUILD)
    session.run("python", "scripts/sanitize.py", *session.posargs)


@nox.session
def soak(session: nox.Session) -> None:
    """Random cells of all papers for as long as wanted: nox -s soak -- --minutes 120.

    Ends with 1 where memory, descriptors, files or the time per cell of the runner grow.
    """
    _install(session)
    session.run("python", "scripts/soak.py", *session.posargs)


@nox.session
def repeat(session: nox.Session) -> None:
    """Run twice, and end with 1 where the numbers are not the same: nox -s repeat -- [PAPER]."""
    _install(session, contenders=True)
    session.run("dgbench", "repeat", *session.posargs)


@nox.session
def fuzz(session: nox.Session) -> None:
    """Throw inputs at every reader: nox -s fuzz -- [TARGET] [--seconds S] [--engine E] [--keep].

    Guided by coverage where atheris has a wheel; elsewhere that engine says why it is left out.
    """
    _install(session)
    # bound: not a break: the release that the corpus was grown with
    pip = ("python", "-m", "pip", "install", "--quiet", "--only-binary=:all:", "atheris==3.0.0")
    session.run(*pip, success_codes=range(256))
    session.run("python", "-m", "tests.fuzz", *(session.posargs or ("--seconds", "10")))


@nox.session
def faults(session: nox.Session) -> None:
    """Inject every fault into runs, count losses: nox -s faults -- [--only NAME] [--mutants]."""
    _install(session)
    session.run("python", "-m", "tests.faults", *session.posargs)
