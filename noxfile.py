"""Sessions for people: `nox -s reproduce -- pipad`, `nox -s tests`, and the checks around them.

Sessions that need dgbench share one environment, `.nox/dgbench`, see scripts/environment.py: it is
made by the first of them and brought up to date by the others. Nothing needs a GPU.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

if sys.version_info < (3, 10):  # noqa: UP036  (nox itself still runs there)
    sys.exit(
        "error: dgbench needs Python 3.10 or newer, and nox runs on Python {}.{}. "
        "Start it with a newer one, as in: python3.12 -m nox".format(*sys.version_info[:2])
    )

import nox
from nox.command import CommandFailed

sys.path.insert(0, str(Path(__file__).resolve().parent / "scripts"))
from environment import TORCH, requirements

nox.needs_version = ">=2024.4"
nox.options.sessions = ["lint", "tests"]
nox.options.reuse_existing_virtualenvs = True
nox.options.error_on_missing_interpreters = True

ROOT = Path(__file__).resolve().parent
PROGRAMS = ROOT / ".nox" / "dgbench" / ("Scripts" if os.name == "nt" else "bin")
PACKAGES = ["kernels_cuda", "datasets", "runtime", "models", "lab", "systems", "harness"]
LINTED = [
    "src", *PACKAGES, "benchmarks", "scripts", "tests", "docs/hooks", "noxfile.py",
]  # fmt: skip
# What differs between machines that all compute right: by name, the variables and the words of
# scripts/run_under.py that the suite runs under in `nox -s everywhere`.
EVERYWHERE: dict[str, tuple[dict[str, str], list[str]]] = {
    "aten-default": ({"ATEN_CPU_CAPABILITY": "default"}, []),
    "mkl-compatible": ({"MKL_CBWR": "COMPATIBLE"}, []),
    "avx2": ({"DGBENCH_AVX2": "1"}, []),
    "fused": ({"DGBENCH_FUSED": "1"}, []),
    "unfused": ({"DGBENCH_FUSED": "0"}, []),
    "locale-c": ({"LC_ALL": "C"}, []),
    "one-core": ({}, ["--core", "0"]),
    "load": ({}, ["--load", "6"]),
    "no-network": ({}, ["--no-network"]),
    "user": ({}, ["--user"]),
}
# What `nox -s nightly` runs: the whole of what .ci/run samples, and what it has no time for.
NIGHTLY: dict[str, list[str]] = {
    "audit": [],
    "campaigns": [],
    "cheats": [],
    "compile_cuda": [],
    "everywhere": [],
    "faults": [],
    "fuzz": ["--seconds", "10"],
    "liveness": ["--twins", "smoke", "quick", "full"],
    "planted": [],
    "sanitize": ["all"],
    "soak": ["--minutes", "30"],
    "search": ["--minutes", "60"],
}


def in_environment(function: Callable[[nox.Session], None]) -> Callable[[nox.Session], None]:
    """A session in the environment that all of them share."""
    return nox.session(venv_backend="none")(function)


def _install(session: nox.Session, *tools: str) -> None:
    """Bring the shared environment up to date, add tools of this session, and step into it."""
    session.run_install(sys.executable, "scripts/environment.py", external=True, log=False)
    if tools:
        pip = ("pip", "install", "--quiet", "--no-compile", *tools)
        session.run_install(str(PROGRAMS / "python"), "-m", *pip, external=True)
    session.env["VIRTUAL_ENV"] = str(PROGRAMS.parent)
    session.env["PATH"] = os.pathsep.join([str(PROGRAMS), os.environ.get("PATH", "")])
    # Packages are installed without bytecode, which is kept when a module is first imported.
    session.env["PYTHONDONTWRITEBYTECODE"] = ""


def _run(session: nox.Session, program: str, *arguments: str, **settings: object) -> object:
    """Run a program of the shared environment."""
    return session.run(str(PROGRAMS / program), *arguments, external=True, **settings)


@in_environment
def tests(session: nox.Session) -> None:
    """The whole test suite on the CPU (CUDA tests skip themselves without a device).

    `DGBENCH_SETTING` names one of `EVERYWHERE`, and the suite runs as such a machine runs it.
    """
    setting = os.environ.get("DGBENCH_SETTING", "")
    if setting and setting not in EVERYWHERE:
        session.error(f"DGBENCH_SETTING is {setting!r}; settings are {', '.join(EVERYWHERE)}")
    _install(session)
    _suite(session, setting, session.posargs)


def _suite(session: nox.Session, setting: str, posargs: list[str]) -> None:
    """The suite under a setting of `EVERYWHERE`, or under none of them."""
    # Two workers with two threads each would wait for each other; tests that are about threads
    # ask for theirs.
    session.env.setdefault("OMP_NUM_THREADS", "1")
    variables, under = EVERYWHERE.get(setting, ({}, []))
    python = str(PROGRAMS / "python")
    if setting == "avx2":
        folder = PROGRAMS.parent.with_name("dgbench-avx2")
        into = ("scripts/environment.py", "--into", str(folder))
        session.run(sys.executable, *into, env=variables, external=True)
        python = str(folder / PROGRAMS.name / "python")
    command = (python, "-m", "pytest", *_workers(), *posargs)
    if under:
        command = (python, "scripts/run_under.py", *under, "--", *command)
    if setting:
        words = " ".join([f"{k}={v}" for k, v in variables.items()] + under)
        session.log(f"{setting}: {words}")
    session.run(*command, env=variables, external=True)


def _workers() -> list[str]:
    """Many tests wait for processes that they start, so there is work for four workers on two
    cores; on more cores the others are those processes'. A worker that runs out of its own tests
    takes over some of another's."""
    return ["-n", "4", "--dist", "worksteal"] if (os.cpu_count() or 1) > 1 else []


@in_environment
def everywhere(session: nox.Session) -> None:
    """The test suite as other machines run it: nox -s everywhere -- [SETTING ...] [-- PYTEST ...].

    All settings of `EVERYWHERE` if none is named; each is one run of the suite, and the session
    ends with an error where one of them failed. `avx2` compiles the operators again, into an
    environment of its own, where this machine has wider registers.
    """
    named, rest = list(session.posargs), []
    if "--" in named:
        named, rest = named[: named.index("--")], named[named.index("--") + 1 :]
    if unknown := set(named) - set(EVERYWHERE):
        session.error(f"{sorted(unknown)}: settings are {', '.join(EVERYWHERE)}")
    _install(session)
    failed = []
    for name in named or EVERYWHERE:
        if name == "avx2" and "avx512f" not in _cpu_flags():
            session.log("avx2: this machine has no wider registers, its operators are those")
            continue
        try:
            _suite(session, name, rest)
        except CommandFailed:  # the other settings are asked all the same
            failed.append(name)
    if failed:
        session.error(f"the suite failed under {', '.join(failed)}")


def _cpu_flags() -> list[str]:
    """Features that the processor names; empty where no file tells."""
    try:
        return Path("/proc/cpuinfo").read_text().split()
    except OSError:
        return []


@in_environment
def search(session: nox.Session) -> None:
    """Draw new examples for the property tests: nox -s search -- --minutes 120 [--seed S] [TESTS].

    `nox -s tests` draws the same examples every time. What this finds lies in build/search; it ends
    with 1 where that is something.
    """
    _install(session)
    session.env.setdefault("OMP_NUM_THREADS", "1")
    _run(session, "python", "scripts/search_examples.py", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """ruff: lint and format check."""
    session.install("ruff>=0.6")
    session.run("ruff", "check", *LINTED)
    session.run("ruff", "format", "--check", *LINTED)


@in_environment
def types(session: nox.Session) -> None:
    """mypy over the interfaces that others program against, see pyproject.toml for which."""
    _install(session, "mypy>=1.11", "types-PyYAML", "types-requests", "types-psutil")
    # The sources lie beside each other and not in a folder `dgbench`, which mypy asks for.
    package = Path(session.create_tmp()) / "types" / "dgbench"
    package.mkdir(parents=True, exist_ok=True)
    for folder in PACKAGES:
        if not (package / folder).exists():
            (package / folder).symlink_to(ROOT / folder, target_is_directory=True)
    for path in (ROOT / "src" / "dgbench").iterdir():
        if path.is_file():
            shutil.copy(path, package)
    _run(session, "mypy", *session.posargs, env={"MYPYPATH": str(package.parent)})


@in_environment
def reproduce(session: nox.Session) -> None:
    """Run papers' experiments and end with verdicts: nox -s reproduce -- pipad [--preset ...]."""
    _install(session)
    _run(session, "dgbench", "reproduce", *session.posargs)


@in_environment
def arena(session: nox.Session) -> None:
    """Race all systems on frozen tasks, end with the race table: nox -s arena -- [TASK] [...]."""
    _install(session)
    _run(session, "dgbench", "arena", *session.posargs)


@in_environment
def peers(session: nox.Session) -> None:
    """Compile the contenders without binary releases (tglite), once; other sessions use them."""
    _install(session, "setuptools", "wheel")
    _run(session, "python", "scripts/build_peers.py", *session.posargs)
    _run(session, "python", "-c", "import tglite; print('tglite', tglite.__file__)")


@in_environment
def bench(session: nox.Session) -> None:
    """pytest-benchmark over the compiled operators: time, rate and share of a limit of each.

    Compares with the newest saved session of this kind of machine and keeps nothing, unless asked:
    nox -s bench -- --benchmark-save=baseline, or --benchmark-compare-fail=median:10%.
    """
    _install(session)
    _run(
        session, "python", "-m", "pytest", "benchmarks/operators", "--benchmark-only",
        "--benchmark-quiet", "--benchmark-compare", "-p", "no:xdist", *session.posargs,
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


@in_environment
def asv(session: nox.Session) -> None:
    """Count what every system does, refuse counters that grew, publish the history's pages.

    Posargs go to a further `asv run`: nox -s asv -- --bench time_.
    """
    _install(session, "asv>=0.6.6", "virtualenv")
    _run(session, "asv", "machine", "--yes", silent=True)
    _run(session, "asv", "check", "--python=same")
    commit = ""
    if shutil.which("git"):
        ask = ["git", "rev-parse", "HEAD"]
        commit = session.run(*ask, external=True, silent=True, success_codes=[0, 128]).strip()
    if len(commit) != 40:
        session.warn("no commit to write counts down for: counters are compared in a clone alone")
        return
    run = ["asv", "run", "--python=same", "--record-samples", "--set-commit-hash", commit]
    # A benchmark that fails is asv's exit code 2; the comparison names it.
    _run(session, *run, "--bench", r"^(counters|operators)\..*track_", success_codes=[0, 2])
    _run(session, "dgbench", "compare", "benchmarks/asv/baseline.json", ".asv/results")
    if session.posargs:
        _run(session, *run, *session.posargs)
    _run(session, "asv", "publish", "--no-pull")


@in_environment
def figures(session: nox.Session) -> None:
    """Draw the figures and pages of a finished run again: nox -s figures -- [RUN]."""
    _install(session)
    _run(session, "dgbench", "report", *session.posargs)


@in_environment
def compile_cuda(session: nox.Session) -> None:
    """Compile the CUDA operators; needs nvcc, no device: nox -s compile_cuda -- [ARCHITECTURE].

    For all supported architectures if none is given, which takes as many times as long.
    """
    if not (shutil.which("nvcc") or Path("/usr/local/cuda/bin/nvcc").exists()):
        session.skip("no nvcc here; the CUDA operators are compiled where the toolkit is")
    _install(session)
    wanted = session.posargs[0] if session.posargs else "all"
    build = Path(session.create_tmp()) / f"cuda-{wanted}"
    _run(
        session, "cmake", "-S", ".", "-B", str(build), "-G", "Ninja", f"-DDGBENCH_CUDA={wanted}",
        f"-DPython_EXECUTABLE={PROGRAMS / 'python'}",
    )  # fmt: skip
    _run(session, "cmake", "--build", str(build), "--target", "_cuda")
    # It must import where there is no driver, and say so.
    found = next(build.rglob("_cuda*.so"))
    code = "import _cuda; print(_cuda.build_info())"
    _run(session, "python", "-c", code, env={"PYTHONPATH": str(found.parent)})


@in_environment
def gpu(session: nox.Session) -> None:
    """Build for the device that is here, run the CUDA tests, measure operators, race on it.

    scripts/gpu_run.sh does the same without a network and in calls of nine minutes, and more:
    sanitizers first.
    """
    _install(session)
    _run(session, "dgbench", "doctor")
    _run(session, "python", "-m", "pytest", "-m", "cuda", "tests", *session.posargs)
    out = Path("build/gpu")
    out.mkdir(parents=True, exist_ok=True)
    kernels = str(out / "kernels.jsonl")
    ask = "import torch; print('sm_%d%d' % torch.cuda.get_device_capability())"
    arch = _run(session, "python", "-c", ask, silent=True).split()[-1]
    _run(session, "python", "scripts/kernel_resources.py", "--arch", arch, "--out", kernels)
    _run(session, "dgbench", "reproduce", "--device", "cuda")


@nox.session
def wheel(session: nox.Session) -> None:
    """Build a wheel, and race two systems with it where neither compiler nor checkout is.

    nox -s wheel -- WHEEL takes one that was built elsewhere, as CI does.
    """
    given = [str(Path(one).resolve()) for one in session.posargs]
    if not given:
        out = Path(session.create_tmp()) / "wheels"
        shutil.rmtree(out, ignore_errors=True)
        settings = ["cmake.define.DGBENCH_PORTABLE=ON", "cmake.define.DGBENCH_CUDA=off"]
        options = [word for one in settings for word in ("-C", one)]
        session.run(
            "python", "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(out), *options, ".",
        )  # fmt: skip
        given = [str(next(out.glob("dgbench-*.whl")))]
    session.install("--no-compile", "--force-reinstall", "--no-deps", *given)
    session.install("--no-compile", TORCH, *given)
    session.run("python", "scripts/race_wheel.py")


@nox.session
def audit(session: nox.Session) -> None:
    """Known vulnerabilities of all that dgbench installs; where no database answers, it says so.

    Needs no compiler: what is audited is what dgbench and its tests ask for.
    """
    session.install("--no-compile", *requirements(), "pip-audit>=2.7")
    session.run("python", "scripts/audit.py", *session.posargs)


@in_environment
def sanitize(session: nox.Session) -> None:
    """The operators' tests under ASan, UBSan and TSan: nox -s sanitize -- [address|thread|all].

    Each checked build takes minutes; `--quick` runs fewer tests. What is missing for one of
    them, such as clang for `thread`, is said in the table.
    """
    _install(session)
    _run(session, "python", "scripts/sanitize.py", *session.posargs)


@in_environment
def soak(session: nox.Session) -> None:
    """Random cells of all papers for as long as wanted: nox -s soak -- --minutes 120.

    Ends with 1 where memory, descriptors, files or the time per cell of the runner grow.
    """
    _install(session)
    _run(session, "python", "scripts/soak.py", *session.posargs)


@in_environment
def liveness(session: nox.Session) -> None:
    """Look whether a workload trains a dead network: nox -s liveness -- [--twins] [PRESET ...].

    All graphs with all models, on real data where it is here; ends with 1 where one is dead.
    """
    _install(session)
    session.env.setdefault("OMP_NUM_THREADS", "1")
    _run(session, "python", "tests/systems/liveness_walk.py", *session.posargs)


@in_environment
def repeat(session: nox.Session) -> None:
    """Run twice, and end with 1 where the numbers are not the same: nox -s repeat -- [PAPER]."""
    _install(session)
    _run(session, "dgbench", "repeat", *session.posargs)


@in_environment
def same(session: nox.Session) -> None:
    """Compare the counts of smoke with those of another commit: nox -s same -- REV [OPTION ...].

    Builds that commit into an environment of its own, runs smoke of all papers with both, and ends
    with 1 where a cell observes other things, or other counts or bytes.
    """
    if not session.posargs:
        session.error("name a commit: nox -s same -- HEAD~1")
    revision, *rest = session.posargs
    _install(session)
    base = Path(session.create_tmp()).resolve()
    tree, env = base / "tree", base / "env"
    shutil.rmtree(base / "runs", ignore_errors=True)
    shutil.rmtree(tree, ignore_errors=True)
    session.run("git", "worktree", "prune", external=True)
    session.run("git", "worktree", "add", "--detach", str(tree), revision, external=True)
    make = (sys.executable, str(tree / "scripts" / "environment.py"), "--into", str(env))
    session.run(*make, external=True)
    asked = ("reproduce", "--preset", "smoke", "--rounds", "fixed", *rest)
    folders = []
    for name, programs in (("old", env / PROGRAMS.name), ("new", PROGRAMS)):
        out = base / "runs" / name
        run = (str(programs / "dgbench"), *asked, "--out", str(out))
        session.run(*run, external=True, success_codes=[0, 1])  # rows that fail are compared, too
        folders += sorted(path.parent for path in out.glob("*/run.json"))
    session.run("git", "worktree", "remove", "--force", str(tree), external=True)
    _run(session, "python", "-m", "tests.golden.rows", *map(str, folders))


@in_environment
def fuzz(session: nox.Session) -> None:
    """Throw inputs at every reader: nox -s fuzz -- [TARGET] [--seconds S]."""
    _install(session)
    _run(session, "python", "-m", "tests.fuzz", *(session.posargs or ("--seconds", "10")))


@in_environment
def faults(session: nox.Session) -> None:
    """Inject every fault into runs, count losses: nox -s faults -- [--only NAME].

    `--quick` injects one fault of each kind, which is what CI has time for.
    """
    _install(session)
    _run(session, "python", "-m", "tests.faults", *session.posargs)


@in_environment
def campaigns(session: nox.Session) -> None:
    """Run the long tests that the suite leaves out, marked `nightly`: nox -s campaigns."""
    _install(session)
    session.env.setdefault("OMP_NUM_THREADS", "1")
    _run(session, "python", "-m", "pytest", *_workers(), "-m", "nightly", *session.posargs)


@in_environment
def cheats(session: nox.Session) -> None:
    """Plugins that cheat, in preset quick; the suite trains some in smoke: nox -s cheats."""
    _install(session)
    session.env.update({"OMP_NUM_THREADS": "1", "DGBENCH_CHEATS": "quick"})
    _run(session, "python", "-m", "pytest", "tests/cheats", *session.posargs)


@in_environment
def planted(session: nox.Session) -> None:
    """Plant 5 % more work in a commit and bisect on a real clock: nox -s planted -- [--trials 5].

    Ends with 1 where a wrong commit is confirmed, or fewer than half of the searches find theirs.
    """
    _install(session)
    _run(session, "python", "-m", "tests.planted_regression", *session.posargs)


@nox.session(venv_backend="none")
def nightly(session: nox.Session) -> None:
    """Queue the long checks: campaigns, cheats, faults, inputs, liveness, sanitizers, soak, search.

    A matter of hours. Each is a session of its own and ends with 1 where it found something; the
    others go on.
    """
    for name, arguments in NIGHTLY.items():
        session.notify(name, arguments)
