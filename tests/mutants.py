"""Small faults planted at import: does the suite notice them?

    python -m tests.mutants list
    python -m tests.mutants run [NAME ...] [-- PYTEST ...]

A mutant is one replacement in one module. It is planted by an import hook, in this process and all
that it starts, and no file is touched; operators are compiled with it in `build/mutants`. `run`
asks first the golden record and the tests that name the mutated module, then the whole suite, each
up to the first failure, and writes who killed what into `tests/mutants.tsv`. A mutant that survives
is a hole in the suite, or a line that nothing needs.
"""

from __future__ import annotations

import csv
import importlib.abc
import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from filecmp import cmp as same
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
MATRIX: Final = ROOT / "tests" / "mutants.tsv"
CHOSEN: Final = "DGBENCH_MUTANT"
SOURCES: Final = {".cpp", ".hpp", ".h", ".txt", ".cmake", ".py", ".in"}
BUILD: Final = ROOT / "build" / "mutants"
TIMEOUT_S: Final = 1800
SITE: Final = """\
import os, sys
if os.environ.get({0!r}):
    sys.path.insert(0, {1!r})
    from tests.mutants import plant
    plant(os.environ[{0!r}])
"""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A fault.

    Attributes:
        name: what goes wrong, in a few words joined by hyphens.
        module: dotted, below `dgbench`; of an operator its file.
        old, new: text of the module, which occurs once, and what takes its place.
    """

    name: str
    module: str
    old: str
    new: str

    @property
    def path(self) -> Path:
        """File of the module in the sources."""
        return ROOT / (self.module if self.compiled else self.module.replace(".", "/") + ".py")

    @property
    def compiled(self) -> bool:
        """True if it lies in an operator."""
        return self.module.endswith((".cpp", ".hpp"))

    @property
    def target(self) -> str:
        """Module that is loaded with the fault."""
        return f"dgbench.{'kernels_cuda._cpu' if self.compiled else self.module}"

    def planted(self, source: str) -> str:
        """The module's source with the fault. Raises ValueError where its place is not unique."""
        if source.count(self.old) != 1:
            raise ValueError(f"{self.name}: {source.count(self.old)} places in {self.module}")
        return source.replace(self.old, self.new)


MUTANTS: Final = [Mutant(*fields) for fields in (
    # Verdicts.
    ("bound-by-the-wrong-end", "harness.claims.verdict",
     "kept = high <= bounds[1] if upper else low >= bounds[0]",
     "kept = low <= bounds[1] if upper else high >= bounds[0]"),
    ("deviation-does-not-weaken", "harness.claims.verdict",
     'if agreed == "value" and _deviates(finding):', "if False:"),
    ("one-pair-decides", "harness.claims.verdict",
     'if found.source == "timed" and middle is not None and finding.low is None:', "if False:"),
    ("some-readings-are-all", "harness.claims.verdict",
     "if len(measured) < len(each):", "if False:"),
    ("other-way-round", "harness.claims.verdict",
     "right = (which > 0) == (bounds[0] > middle)", "right = (which > 0) != (bounds[0] > middle)"),
    ("disturbed-control-judged", "harness.claims.verdict",
     'if found.source == "timed" and floor is not None and control_disturbed(floor):',
     "if False:"),
    ("a-cpu-is-a-gpu", "lab.evidence",
     'elif scope.device == "gpu" and found.device != "cuda":', "elif False:"),
    ("four-processes-are-five", "lab.evidence",
     "found.processes < MIN_PROCESSES", "found.processes < MIN_PROCESSES - 1"),
    ("a-part-is-whole", "lab.evidence",
     "whole = not isinstance(scale, int | float) or scale >= 1", "whole = True"),
    # Lab and statistics.
    ("spread-without-a-degree", "runtime.statistics",
     "half = t_quantile(n - 1, level) * logs.std(ddof=1) / math.sqrt(n)",
     "half = t_quantile(n - 1, level) * logs.std(ddof=0) / math.sqrt(n)"),
    ("weights-not-squared", "runtime.statistics",
     "parts.append(x.var(ddof=1) / len(x) * share[members[0]] ** 2)",
     "parts.append(x.var(ddof=1) / len(x) * share[members[0]])"),
    ("looks-are-free", "lab.compare",
     "return 1 - 0.05 / max((getattr(row, \"looks\", 0) or 1 for row in rows), default=1)",
     "return 0.95"),
    ("controls-are-contenders", "lab.table",
     'return in_ratios(row) and "control" not in row.params', "return in_ratios(row)"),
    ("first-number-counts", "lab.table",
     "return {key: table[-1].value for key, table in self.by(*dims).items()}",
     "return {key: table[0].value for key, table in self.by(*dims).items()}"),
    ("small-gaps-by-the-whole", "lab.result_checks",
     "size if size > 1e-3 * total else total", "total"),
    # Checks of claims.
    ("lost-is-not-said", "lab.outcomes",
     'fields = {"holds": self.side > 0}', 'fields = {"holds": True}'),
    ("most-is-all", "lab.rules", "2 * inside > len(numbers)", "inside == len(numbers)"),
    ("lowest-of-the-highest", "systems.pipad.experiments.fig10",
     "most.joined_over(max, *WORKLOAD)", "most.joined_over(min, *WORKLOAD)"),
    ("percent-of-a-share", "systems.pipad.experiments.memory",
     'SAVING = 100 * observed("saving")', 'SAVING = 1 * observed("saving")'),
    ("shown-beside-is-evidence", "lab.estimates", "with judging(current_floor()):", "if True:"),
    ("any-count-is-linear", "systems.tgcn.experiments.fig8",
     "max(shares) <= NEAR * min(shares)", "max(shares) > 0"),
    ("kept-snapshots-not-counted", "systems.esdg.experiments.fig4",
     "max(0, len(block) - ranks)", "max(0, len(block) - 1)"),
    ("small-and-large-alike", "systems.pipad.experiments.settings",
     '"small" if BY_NAME[name].small else "large"', '"small" if name else "large"'),
    ("both-sides-of-restoration", "systems.gnnflow.experiments.fig14",
     '.joined_over(min, "of", "capacity")', '.joined_over(max, "of", "capacity")'),
    ("other-ranks-race", "systems.dgc.experiments.fig12_rows",
     "return [one for one in mine if one.ranks == size]", "return mine"),
    # Plan and rounds.
    ("preset-leaves-the-hash", "harness.plan.plan", '        "preset": preset,\n', ""),
    ("looks-twice-as-late", "harness.plan.rounds",
     "found.append(min(2 * found[-1], most))", "found.append(min(4 * found[-1], most))"),
    ("budget-forgotten", "harness.plan.rounds",
     "reach = group.rounds + int(left // group.cost_s)", "reach = plan.rounds.most"),
    ("cells-run-twice", "harness.plan.plan",
     "            seen.add(planned.hash)\n", ""),
    # Store and runner.
    ("a-retry-washes", "harness.store.standing",
     "        if row is not last[process_of(row)]:", "        if False:"),
    ("divisions-fall-together", "harness.store.standing",
     "            return False  # other settings", "            pass"),
    ("void-keeps-numbers", "harness.store.row",
     "        self.samples, self.observed = [], []\n", "        self.samples = []\n"),
    ("repeat-counts-always", "harness.store.standing",
     "better = whole and _disturbed(again) < _disturbed(before)", "better = True"),
    ("worst-of-a-cell-is-best", "harness.store.standing",
     "found[key] = max(found.get(key, \"ok\"), now, key=order.index)",
     "found[key] = min(found.get(key, \"ok\"), now, key=order.index)"),
    ("own-checks-are-ours", "lab.result_checks",
     "own=_key(one) not in _FORMED", "own=False"),
    ("nothing-compared-passes", "lab.result_checks",
     "return self.compared > 0 and not loose and self.gap <= self.tolerance",
     "return not loose and self.gap <= self.tolerance"),
    ("memory-is-a-crash", "harness.runner.outcome",
     'if outcome.killed == "oom":', 'if outcome.killed == "never":'),
    # Engines, audits among them.
    ("first-sign-of-equation-6", "systems.dgc.stale",
     'return 1 / (1 + math.exp(-norm if sign == "corrected" else norm))',
     'return 1 / (1 + math.exp(norm if sign == "corrected" else -norm))'),
    ("cut-counted-twice", "systems.dgc.assignment",
     "int(weight[apart].sum()) // 2", "int(weight[apart].sum())"),
    ("border-of-another-block", "systems.esdg.checkpoint",
     "before = None if number == 0 else states[number - 1].detach()",
     "before = None if number == 0 else states[0].detach()"),
    ("two-passes-for-three", "systems.esdg.volumes",
     "pairs += len(times) * num_nodes - kept", "pairs += len(times) * num_nodes"),
    ("loops-added-twice", "systems.esdg.transfer",
     "self_loop=not self._form.ship_loops)", "self_loop=True)"),
    ("admits-what-fits", "systems.gnnflow.cache",
     "limit = min(capacity, max(1, int(admission * capacity)))", "limit = capacity"),
    ("blocks-are-rounded-down", "systems.gnnflow.block_counts",
     "made = -(-rest // capacity)", "made = rest // capacity"),
    ("odd-swaps-are-even", "systems.tgcn.ring",
     "odd = tuple((ring[i], ring[(i + 1) % size]) for i in range(1, size, 2))", "odd = even"),
    ("older-messages-win", "systems.base.stream_memory",
     "newer = time >= recalled.rows.mail_time[touched]",
     "newer = time <= recalled.rows.mail_time[touched]"),
    ("audits-forget-adam", "systems.base.audit",
     "new = torch.addcdiv(old, first, root, value=-lr / (1 - BETA_1**count))",
     "new = value.clone()"),
    # Datasets.
    ("windows-closed-on-the-right", "datasets.transforms.windows",
     "t.contiguous(), right=True)", "t.contiguous(), right=False)"),
    ("degrees-without-the-loop", "datasets.transforms.normalise",
     "degree = csr.indptr.diff().to(torch.float64) + 1",
     "degree = csr.indptr.diff().to(torch.float64)"),
    ("edges-live-longer", "datasets.transforms.edge_life",
     "        edge_life=life,\n", "        edge_life=life + 1,\n"),
    ("scale-may-be-zero", "datasets.sequence",
     'if not (isinstance(scale, (int, float)) and 0 < scale',
     'if not (isinstance(scale, (int, float)) and 0 <= scale'),
    # Runtime.
    ("every-mark-is-kept", "runtime.meter",
     "        if number % stride:\n            return\n", ""),
    ("drawn-rounds-are-regular", "runtime.schedule",
     "return since == 0 or (since > 0 and self._draw.random() * 2 * (since + 1) < 1)",
     "return since == 0"),
    ("warm-up-is-one", "runtime.steady", "    most = max(1, count // 3)\n", "    most = 1\n"),
    ("a-floor-is-no-floor", "runtime.statistics",
     "MAX_FLOOR: Final = 0.5", "MAX_FLOOR: Final = 50.0"),
    # Models.
    ("m-transform-sees-ahead", "models.dtdg.tm_gcn",
     "band = ((back >= 0) & (back < window)).to(x.dtype)",
     "band = ((back >= -1) & (back < window)).to(x.dtype)"),
    ("frames-share-no-norm", "models.dtdg.mpnn_lstm",
     "return functional.pad(out, (0, len(raw) - 1 - step))",
     "return functional.pad(out, (len(raw) - 1 - step, 0))"),
    # Operators.
    ("cell-without-its-input-gate", "kernels_cuda/scan/cpu_lstm.hpp",
     "const Vec<R> cell = f * load(c + v * hp + j) + i * g;",
     "const Vec<R> cell = f * load(c + v * hp + j) + g;"),
    ("taken-weights-stay", "kernels_cuda/weighted/cpu_prefix.hpp",
     "if (free_.closed(i)) weights_[i] = W(0);", "if (i < 0) weights_[i] = W(0);"),
    ("hits-are-evicted", "kernels_cuda/row_cache/cpu.cpp",
     "return last[slot] == now ? kNoKey : static_cast<std::uint32_t>(rank[slot]);",
     "return last[slot] == now ? 0u : static_cast<std::uint32_t>(rank[slot]);"),
    ("heavy-rows-unscaled", "kernels_cuda/aggregate/cpu_rows.hpp",
     "out[j] = (job.self_loop ? out[j] + own[j] : out[j]) * scale;",
     "out[j] = (job.self_loop ? out[j] + own[j] : out[j]) * (scale * 0 + 1);"),
    ("added-counted-as-removed", "kernels_cuda/difference/cpu.cpp",
     "    total.second += part.added.count;", "    total.second += part.removed.count;"),
    ("neighbours-of-the-same-time", "kernels_cuda/temporal_sample/cpu_search.hpp",
     "    if (v.t_max < key) {", "    if (v.t_max <= key) {"),
)]  # fmt: skip


class _Planted(importlib.machinery.SourceFileLoader):
    """Loads a module with a fault, and leaves no bytecode."""

    mutant: Mutant

    def get_code(self, fullname: str) -> Any:
        source = Path(self.path).read_text(encoding="utf-8")
        return compile(self.mutant.planted(source), self.path, "exec", dont_inherit=True)


class Planter(importlib.abc.MetaPathFinder):
    """Finds the mutated module before anybody else does."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname != self._mutant.target:
            return None
        if self._mutant.compiled:
            return importlib.util.spec_from_file_location(fullname, built(self._mutant))
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is not None and spec.origin is not None:
            loader = _Planted(fullname, spec.origin)
            loader.mutant = self._mutant
            spec.loader = loader
        return spec


def built(mutant: Mutant) -> Path:
    """Operators with a fault, compiled once; what the fault does not reach is compiled once for
    all."""
    module = BUILD / f"{mutant.name}.so"
    if module.exists():
        return module
    tree, objects = BUILD / "tree", BUILD / "objects"
    for path in (ROOT / "CMakeLists.txt", *(ROOT / "kernels_cuda").rglob("*")):
        copy = tree / path.relative_to(ROOT)
        if path.suffix in SOURCES and not (copy.exists() and same(path, copy, shallow=False)):
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    make = ["cmake", "-S", str(tree), "-B", str(objects), "-G", "Ninja", "-DDGBENCH_CUDA=off",
            f"-DPython_EXECUTABLE={sys.executable}"]  # fmt: skip
    subprocess.run(make, check=True, capture_output=True)
    path = tree / mutant.module
    path.write_text(mutant.planted(mutant.path.read_text("utf-8")), "utf-8")
    ask = ["cmake", "--build", str(objects), "--target", "_cpu"]
    subprocess.run(ask, check=True, capture_output=True)
    shutil.copy(next(objects.rglob("_cpu*.so")), module)
    return module


def plant(name: str) -> None:
    """Plant a mutant in this process, before its module is imported."""
    mutant = next(one for one in MUTANTS if one.name == name)
    sys.meta_path.insert(0, Planter(mutant))


def ask(mutant: Mutant, *arguments: str) -> tuple[str, float]:
    """First failing test under a mutant, "" where none fails, and seconds."""
    with tempfile.TemporaryDirectory() as folder:
        # Every Python that the suite starts plants it, too.
        Path(folder, "sitecustomize.py").write_text(SITE.format(CHOSEN, str(ROOT)))
        paths = [folder, *filter(None, [os.environ.get("PYTHONPATH")])]
        env = {**os.environ, CHOSEN: mutant.name, "PYTHONPATH": os.pathsep.join(paths)}
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *arguments]
        began = time.monotonic()
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=TIMEOUT_S,
                check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return "(time)", time.monotonic() - began
    took = time.monotonic() - began
    if done.returncode in (0, 5):
        return "", took
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return (failed[0].split()[1] if failed else "(does not start)"), took


def near(mutant: Mutant) -> list[str]:
    """Test files that import the mutated module by name or are of its system, with the golden
    record, first where it decides; of an operator those of its folder's name."""
    if mutant.compiled:
        operator = mutant.path.parent.name
        return [str(p) for p in sorted((ROOT / "tests" / "kernels").glob(f"test_{operator}*.py"))]
    words = (f"dgbench.{mutant.module}", mutant.module.rpartition(".")[2])
    parent = f"from dgbench.{mutant.module.rpartition('.')[0]} import"
    found = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if words[0] in text or (parent in text and words[1] in text):
            found.append(str(path.relative_to(ROOT)))
    system = mutant.module.removeprefix("systems.").partition(".")[0]
    mine = sorted((ROOT / "tests" / "systems").glob(f"test_{system}_*.py"))
    found += [one for path in mine if (one := str(path.relative_to(ROOT))) not in found]
    golden = "tests/harness/test_golden.py"
    decides = mutant.module.startswith(("harness.claims", "lab", "runtime.statistics", "systems"))
    return [golden, *found] if decides else [*found, golden]


def run(names: Sequence[str], rest: Sequence[str]) -> int:
    """Ask the suite about mutants; the number of those that survive."""
    known = _read()
    for mutant in MUTANTS:
        if names and mutant.name not in names:
            continue
        if mutant.compiled:
            built(mutant)
        killer, took = ask(mutant, *near(mutant), *rest)
        if not killer:
            killer, more = ask(mutant, "tests", *rest)
            took += more
        known[mutant.name] = (killer, f"{took:.0f}")
        print(f"{mutant.name}: {killer or 'SURVIVES'} ({took:.0f} s)", flush=True)
        _write(known)
    return sum(not known[one.name][0] for one in MUTANTS if one.name in known)


def _read() -> dict[str, tuple[str, str]]:
    if not MATRIX.exists():
        return {}
    with MATRIX.open(encoding="utf-8", newline="") as file:
        return {name: (killer, took) for name, killer, took in csv.reader(file, delimiter="\t")}


def _write(known: dict[str, tuple[str, str]]) -> None:
    with MATRIX.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, delimiter="\t", lineterminator="\n")
        table.writerows((name, *found) for name, found in sorted(known.items()))


def main(arguments: Sequence[str]) -> int:
    """See the module; exit code 1 where a mutant survives."""
    if not arguments or arguments[0] not in ("list", "run"):
        print(__doc__)
        return 2
    if arguments[0] == "list":
        for one in MUTANTS:
            print(f"{one.name:36} {one.module}")
        return 0
    names = list(arguments[1:])
    rest = names[names.index("--") + 1 :] if "--" in names else []
    names = names[: names.index("--")] if "--" in names else names
    return 1 if run(names, rest) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
