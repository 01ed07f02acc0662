#!/usr/bin/env bash
# Build for the GPU that is here, then test and measure, part after part.
#
#   scripts/gpu_run.sh [PART...] [OUT]            OUT: folder for logs and rows, default ./gpu_run
#   scripts/gpu_run.sh --dry-run [PART...] [OUT]  say what would run, and run nothing
#
# Parts, `operators` where none is named; time is shared between them in the order given:
#   operators   tests of the operators, sanitizer, one table of measurements
#   tests       every test that needs a device, of all parts; those that need it alone come last
#   lately      tests of what was changed last or failed before, in one process each
#   tables      PiPAD's operators by width, vector, slice and balance
#   placements  GNNFlow: updates, samples by placement, the feature cache
#   races       PiPAD against PyG-Temporal on small graphs at full size
#   profile     kernels and launches of a PiPAD step
#   equality    every registered system, and every paper's own, on the device against the CPU
#   roofline    every operator against its roof, with launches, registers and spills
#   billion     a twin of 1.47 billion edges on one device: ingest, samples, an epoch
#   sanitizers  memcheck, racecheck, initcheck and synccheck over small tests of every kernel
#   differences ESDG: encode and rebuild, plain transfer against differences
#   reproduce   the quick experiments of all papers, what is left of the time in equal shares
#   pipad, esdg, dgc, gnnflow, tgcn   a paper: correctness, operators, its experiments
#
# Meant for a machine without a network that has torch, nvcc, cmake, ninja, scikit-build-core,
# nanobind, pytest and hypothesis. All of it takes less than ten minutes. Settings:
#   DGBENCH_SECONDS  how long all of it may take (default: 560)
#   DGBENCH_WHEELS   folder of wheels for what the machine lacks (scripts/gpu_wheels.sh fills one)
#   DGBENCH_DATA     folder of real data; without it the real-only datasets show as missing
#   DGBENCH_SITE     where to install (default: a temporary folder)
#   DGBENCH_PRESET   preset of the reproduction (default: quick)
#   DGBENCH_PAPERS   papers of `reproduce` (default: all but tgcn, which is a part of its own)
#   PYTHON           interpreter (default: python3)
set -u -o pipefail
cd "$(dirname "$0")/.." || exit 1
started=$SECONDS
dry=
if [ "${1:-}" = --dry-run ]; then
  dry=yes
  shift
fi
parts=()
while [[ "${1:-}" =~ ^(operators|tests|lately|tables|placements|races|profile|equality|roofline|billion|sanitizers|differences|reproduce|pipad|esdg|dgc|gnnflow|tgcn)$ ]]; do
  parts+=("$1")
  shift
done
[ ${#parts[@]} -eq 0 ] && parts=(operators)
budget=${DGBENCH_SECONDS:-560}
if [ $# -gt 1 ] || [[ "${1:-}" == -* ]] || ! [[ "$budget" =~ ^[0-9]+$ ]]; then
  sed -n '2,/^set /s/^# \{0,1\}//p' scripts/gpu_run.sh >&2
  exit 2
fi
python=${PYTHON:-python3}
preset=${DGBENCH_PRESET:-quick}
# The work goes on in another folder.
for name in DGBENCH_WHEELS DGBENCH_DATA; do
  if [ -n "${!name:-}" ]; then
    if [ ! -d "${!name}" ]; then
      echo "$name is '${!name}', which is no folder" >&2
      exit 2
    fi
    export "$name=$(cd "${!name}" && pwd)"
  fi
done
# Seconds left to the part that runs; a part may also use what those before it left over.
part_end=$budget
left() { echo $((part_end - (SECONDS - started))); }
step() { echo "== $1 ($((SECONDS - started)) s)"; }

# run SECONDS LOG COMMAND...: run with a limit, also that of what is left; output goes to $out/LOG.
# The command has a session of its own: nothing of it stays behind, whatever way it ends.
run() {
  local limit=$1 log=$2
  shift 2
  [ "$limit" -gt "$(left)" ] && limit=$(left)
  if [ -n "$dry" ]; then
    echo "   at most $limit s, to $log: $*"
    return 0
  fi
  if [ "$limit" -lt 5 ]; then
    echo "   no time left for: $*" | tee -a "$out/$log"
    return 124
  fi
  setsid timeout -k 10 "$limit" "$@" >"$out/$log" 2>&1 &
  session=$!
  wait "$session"
  local status=$?
  end_session
  return $status
}

# Ends what is left of the last session.
session=
end_session() {
  [ -z "$session" ] && return
  if command -v pkill >/dev/null; then
    pkill -KILL -s "$session"
  else
    kill -KILL -- "-$session" 2>/dev/null
  fi
  session=
}
trap 'end_session' EXIT
trap 'exit 130' INT TERM

if [ -n "$dry" ]; then
  out=${1:-gpu_run}
  site=${DGBENCH_SITE:-SITE}
else
  out=$(mkdir -p "${1:-gpu_run}" && cd "${1:-gpu_run}" && pwd)
  site=${DGBENCH_SITE:-$(mktemp -d)}
fi

step "the machine"
if [ -z "$dry" ]; then
  nvidia-smi --query-gpu=name,driver_version,compute_cap,memory.total --format=csv,noheader || {
    echo "no NVIDIA device answers here; nothing to run" >&2
    exit 1
  }
  nvcc --version | tail -2
  "$python" --version
fi

step "building"
if [ -n "${DGBENCH_WHEELS:-}" ]; then
  run 120 wheels.log "$python" -m pip install -q --no-index --no-deps --no-compile --target "$site" \
    "$DGBENCH_WHEELS"/*.whl || {
    tail -20 "$out/wheels.log"
    exit 1
  }
fi
# A build folder of its own: one from another machine may lie in the tree.
run 400 build.log "$python" -m pip install -q --no-build-isolation --no-deps --upgrade \
  --target "$site" -C build-dir="$site/.build" . || {
  tail -40 "$out/build.log"
  exit 1
}
export PYTHONPATH="$site${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1

# Out of the tree, so that the installed package is what runs.
if [ -z "$dry" ]; then
  work=$(mktemp -d)
  cp -r tests scripts pyproject.toml "$work"
  mkdir -p "$work/kernels_cuda" && cp -r kernels_cuda/csrc "$work/kernels_cuda"
  export DGBENCH_CACHE=${DGBENCH_CACHE:-$work/cache}
  cd "$work" || exit 1
  "$python" -c 'import json; from dgbench.kernels_cuda.build_info import build_info; \
info = build_info(); print(json.dumps(info, indent=1)); \
raise SystemExit(0 if info["cuda"]["usable"] else "CUDA operators: " + info["cuda"]["reason"])' ||
    exit 1
fi
tests_of="$python -m pytest -q -p no:cacheprovider -m cuda"

# sanitize SECONDS LOG FILES EXPRESSION [TOOL]: compute-sanitizer over some tests, memcheck if no
# tool is named; files are separated by spaces. Exits 9 if it found something.
sanitize() {
  local tool=${5:-memcheck} ours=
  if [ -z "$dry" ]; then
    if ! command -v compute-sanitizer >/dev/null; then
      echo "   compute-sanitizer is not here"
      return 0
    fi
    # Torch's kernels are not what is looked at; but they write what initcheck must see written.
    [ "$tool" != initcheck ] && compute-sanitizer --help | grep -q -- --kernel-regex &&
      ours="--kernel-regex kns=dgbench"
  fi
  # An allocation of its own for every tensor: in a cached block an overrun stays inside.
  # shellcheck disable=SC2086
  run "$1" "$2" env PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool "$tool" $ours \
    --print-limit 20 --error-exitcode 9 $tests_of $3 ${4:+-k "$4"}
  local status=$?
  [ -n "$dry" ] || grep -E "SUMMARY|passed|failed" "$out/$2" | tail -3
  return $status
}

operators() {
  step "tests"
  # shellcheck disable=SC2086
  run "$(left)" tests.log $tests_of tests/cuda
  local tests=$?
  [ -n "$dry" ] || tail -25 "$out/tests.log"

  step "sanitizer, small sizes"
  local sanitizer="not run, too little time is left"
  if [ "$(left)" -gt 240 ]; then
    sanitize 120 sanitizer.log tests/cuda/test_cuda_operators.py "parts or slices or hub"
    sanitizer=$?
  fi

  step "measurements"
  run "$(left)" table.txt "$python" scripts/gpu_measure.py --out "$out/measurements.jsonl" \
    --seconds "$(($(left) - 20))"
  local measured=$?

  step "summary: tests exit $tests, sanitizer exit $sanitizer, measurements exit $measured"
  [ -n "$dry" ] || cat "$out/table.txt"
  [ "$tests" -eq 0 ] && [ "$measured" -eq 0 ]
}

# Files whose tests fill the device, start ranks on it or read its peak: one process, on its own.
alone="tests/cuda/test_cuda_esdg.py tests/cuda/test_cuda_gnnflow.py tests/runtime/test_ranks.py\
 tests/runtime/test_transfer_cuda.py tests/systems/test_esdg_ranked_cuda.py\
 tests/systems/test_esdg_device_cells.py"

# Every test that asks for a device, spread over processes where pytest-xdist is there.
tests() {
  step "every test that can share the device"
  local spread=
  [ -z "$dry" ] && "$python" -c 'import xdist' 2>/dev/null && spread="-n 8 --dist worksteal"
  # shellcheck disable=SC2086
  run "$(($(left) * 3 / 5))" tests.log $tests_of $spread --tb=short -r fE tests \
    $(printf -- '--ignore %s ' $alone)
  local shared=$?
  [ -n "$dry" ] || tail -30 "$out/tests.log"
  step "tests that need the device alone"
  # shellcheck disable=SC2086
  run "$(left)" alone.log $tests_of --tb=short -r fE $alone
  local single=$?
  [ -n "$dry" ] || tail -30 "$out/alone.log"
  step "summary: tests exit $shared, alone exit $single"
  [ "$shared" -eq 0 ] && [ "$single" -eq 0 ]
}

lately() {
  step "what was changed last, and what failed before"
  # shellcheck disable=SC2086
  run "$(($(left) / 3))" lately.log $tests_of --tb=short -r fE --durations 8 \
    tests/cuda/test_heavy_rows.py tests/cuda/test_cuda_wrappers.py \
    tests/cuda/test_cuda_operators.py tests/cuda/test_temporal_device.py \
    tests/cuda/test_sliced_kernels.py tests/cuda/test_scan_parts.py \
    tests/cuda/test_attention_kernels.py
  local operators=$?
  [ -n "$dry" ] || tail -25 "$out/lately.log"
  # shellcheck disable=SC2086
  run "$(($(left) / 2))" memory.log $tests_of --tb=short -r fE --durations 8 \
    tests/cuda/test_cuda_esdg.py -k "peak or fit"
  local memory=$?
  [ -n "$dry" ] || tail -25 "$out/memory.log"
  # shellcheck disable=SC2086
  run "$(left)" ranks.log $tests_of --tb=short -r fE --durations 8 \
    tests/systems/test_esdg_ranked_cuda.py -k share
  local ranks=$?
  [ -n "$dry" ] || tail -25 "$out/ranks.log"
  step "summary: operators $operators, memory $memory, ranks $ranks"
  [ "$operators" -eq 0 ] && [ "$memory" -eq 0 ] && [ "$ranks" -eq 0 ]
}

# shown LOG: a table that was written, without the warnings before it.
shown() { [ -n "$dry" ] || grep -v -i warn "$out/$1" | tail -"${2:-200}"; }

tables() {
  step "operators"
  run "$(left)" tables.txt "$python" scripts/gpu_tables.py --out "$out/tables.jsonl" \
    --seconds "$(($(left) - 8))"
  local status=$?
  shown tables.txt
  step "summary: operators $status"
  return $status
}

placements() {
  step "updates, samples by placement, and the cache"
  run "$(left)" placements.txt "$python" scripts/gpu_gnnflow.py --out "$out/placements.jsonl" \
    --seconds "$(($(left) - 15))"
  local status=$?
  shown placements.txt
  step "summary: placements $status"
  return $status
}

races() {
  step "races on small graphs"
  run "$(left)" races.txt "$python" scripts/gpu_race.py --out "$out/races.jsonl" --preset full \
    --datasets pems08 covid19-england hepth --seconds "$(($(left) - 12))"
  local status=$?
  shown races.txt
  step "summary: races $status"
  return $status
}

profile() {
  step "kernels and launches of a step"
  run "$(left)" profile.txt "$python" scripts/gpu_profile.py --out "$out/profile.jsonl" \
    --seconds "$(($(left) - 8))"
  local status=$?
  shown profile.txt 140
  step "summary: profile $status"
  return $status
}

equality() {
  step "every system on the device against the CPU"
  # shellcheck disable=SC2086
  run "$(left)" equality.log $tests_of --tb=short -r fE --durations 8 \
    tests/cuda/test_every_system.py tests/systems/test_pygt.py tests/cuda/test_cuda_pipad.py \
    tests/cuda/test_cuda_tgcn.py tests/cuda/test_cuda_dgc.py tests/cuda/test_cuda_gnnflow.py \
    tests/cuda/test_cuda_esdg.py
  local status=$?
  [ -n "$dry" ] || tail -25 "$out/equality.log"
  step "summary: equality $status"
  return $status
}

roofline() {
  step "registers and spills of every kernel"
  local arch=sm_90
  [ -n "$dry" ] || arch=sm_$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d .)
  run "$(($(left) / 3))" kernels.txt "$python" scripts/kernel_resources.py --arch "$arch" \
    --out "$out/kernels.jsonl"
  local compiled=$?
  [ -n "$dry" ] || tail -3 "$out/kernels.txt"
  step "operators against their roofs"
  run "$(left)" roofline.txt "$python" scripts/gpu_roofline.py --out "$out/roofline.jsonl" \
    --resources "$out/kernels.jsonl" --seconds "$(($(left) - 15))"
  local measured=$?
  shown roofline.txt
  step "summary: kernels $compiled, roofline $measured"
  [ "$compiled" -eq 0 ] && [ "$measured" -eq 0 ]
}

billion() {
  step "a graph of 1.47 billion edges on one device"
  run "$(left)" billion.txt "$python" scripts/gpu_billion.py --out "$out/billion.jsonl" \
    --seconds "$(($(left) - 15))"
  local status=$?
  shown billion.txt
  step "summary: billion $status"
  return $status
}

# Small tests of every kernel; those with shared memory and barriers first, for racecheck.
sanitized="tests/cuda/test_scan_parts.py tests/cuda/test_packed_scans.py\
 tests/cuda/test_cuda_operators.py tests/cuda/test_sliced_kernels.py tests/cuda/test_heavy_rows.py\
 tests/cuda/test_weighted_kernels.py tests/cuda/test_edge_sampling_kernels.py\
 tests/cuda/test_interact_kernels.py tests/cuda/test_label_sweeps.py\
 tests/cuda/test_attention_kernels.py tests/cuda/test_difference_kernel.py\
 tests/cuda/test_temporal_device.py tests/cuda/test_row_cache_device.py\
 tests/cuda/test_wire_kernels.py"

findings="^=+ .*(Invalid|Misaligned|Race reported|hazard|Uninitialized|Barrier error)"

sanitizers() {
  local tools=(memcheck racecheck synccheck initcheck) said="" found=0 status
  for i in "${!tools[@]}"; do
    step "${tools[$i]}"
    sanitize "$(($(left) / (${#tools[@]} - i)))" "${tools[$i]}.log" "$sanitized" "" "${tools[$i]}"
    status=$?
    # One that the clock stopped has found nothing so far, unless its log says otherwise.
    [ -z "$dry" ] && [ "$status" -eq 124 ] && grep -qE "$findings" "$out/${tools[$i]}.log" && status=9
    said="$said ${tools[$i]} $status"
    [[ "$status" =~ ^(0|124)$ ]] || found=1
  done
  step "summary:$said (9: found something; 124: stopped by the clock)"
  return $found
}

differences() {
  step "encode and rebuild beside a copy; plain transfer against differences on smoothed twins"
  run "$(left)" differences.txt "$python" scripts/gpu_esdg.py --out "$out/differences.jsonl" \
    --seconds "$(($(left) - 15))"
  local status=$?
  shown differences.txt
  step "summary: differences $status"
  return $status
}

# The papers' experiments, an equal share of what is left to each, but enough to begin with.
reproduce() {
  local papers found=0 ends=$part_end share
  read -ra papers <<<"${DGBENCH_PAPERS:-gnnflow esdg dgc pipad}"
  for i in "${!papers[@]}"; do
    share=$(((ends - (SECONDS - started)) / (${#papers[@]} - i)))
    part_end=$((SECONDS - started + (share > 75 ? share : 75)))
    [ "$part_end" -gt "$ends" ] && part_end=$ends
    reproduction "${papers[$i]}" || found=$?
  done
  part_end=$ends
  step "summary: reproduction $found (124, 130: stopped by the clock)"
  [[ "$found" =~ ^(0|1|124|130)$ ]]
}

# reproduction PAPER: the experiments of a paper in what time is left; 124 where none is.
reproduction() {
  step "reproduction of $1, as far as time allows"
  # A run that is ended by SIGTERM keeps its rows and still writes verdicts and figures.
  local limit=$(($(left) - 12))
  local status=124
  if [ -n "$dry" ] || [ "$limit" -gt 20 ]; then
    run "$limit" "reproduce_$1.log" timeout -k 30 "$((limit > 40 ? limit - 25 : limit))" \
      "$python" -m dgbench reproduce "$1" --device cuda --preset "$preset" --out "$out/runs"
    status=$?
    [ -n "$dry" ] || tail -25 "$out/reproduce_$1.log"
  fi
  return $status
}

pipad() {
  step "tests of the operators"
  # shellcheck disable=SC2086
  run 100 tests.log $tests_of tests/cuda --ignore tests/cuda/test_cuda_pipad.py \
    --ignore tests/cuda/test_cuda_esdg.py --ignore tests/cuda/test_cuda_dgc.py \
    --ignore tests/cuda/test_cuda_gnnflow.py
  local tests=$?
  [ -n "$dry" ] || tail -15 "$out/tests.log"

  step "PiPAD against the reference on the device"
  # shellcheck disable=SC2086
  run 100 equality.log $tests_of tests/cuda/test_cuda_pipad.py
  local equal=$?
  [ -n "$dry" ] || tail -15 "$out/equality.log"

  step "sanitizer: double buffering and arrived topology"
  sanitize 70 sanitizer.log "tests/cuda/test_cuda_wrappers.py tests/cuda/test_cuda_pipad.py" \
    "arrived or (double_buffering and evolvegcn)"
  local sanitizer=$?

  step "operators"
  run 80 operators.txt "$python" scripts/gpu_tables.py --out "$out/operators.jsonl" --seconds 60
  local measured=$?
  [ -n "$dry" ] || cat "$out/operators.txt"

  step "the tuner's table of gains"
  run 50 calibrate.log "$python" -m dgbench calibrate pipad --device cuda --quick
  local calibrated=$?
  [ -n "$dry" ] || tail -5 "$out/calibrate.log"

  step "races, CUDA graphs on and off"
  # Small graphs at their full size, what the paper's best ratios are from; then all the others.
  local race="$python scripts/gpu_race.py --out $out/race.jsonl"
  # shellcheck disable=SC2086
  run 75 race_small.txt $race --preset full --datasets pems08 covid19-england hepth --seconds 55
  local raced=$?
  # shellcheck disable=SC2086
  run 70 race_large.txt $race --datasets epinions flickr youtube amz-automotive --seconds 50 ||
    raced=$?
  [ -n "$dry" ] || cat "$out/race_small.txt" "$out/race_large.txt"

  reproduction pipad
  local reproduced=$?

  step "summary: tests $tests, equality $equal, sanitizer $sanitizer, operators $measured,\
 calibration $calibrated, races $raced, reproduction $reproduced (124, 130: stopped by the clock)"
  # A sanitizer that the clock stopped has found nothing so far.
  [ "$tests" -eq 0 ] && [ "$equal" -eq 0 ] && [[ "$sanitizer" =~ ^(0|124)$ ]] &&
    [ "$measured" -eq 0 ]
}

esdg() {
  step "tests of the graph difference"
  # shellcheck disable=SC2086
  run 50 tests.log $tests_of tests/cuda/test_difference_kernel.py
  local tests=$?
  [ -n "$dry" ] || tail -15 "$out/tests.log"

  step "ESDG against the reference on the device"
  # shellcheck disable=SC2086
  run 80 equality.log $tests_of tests/cuda/test_cuda_esdg.py
  local equal=$?
  [ -n "$dry" ] || tail -15 "$out/equality.log"

  step "ranks on the device against the plain timeline"
  # Two ranks share one device, or have one each over NCCL.
  # shellcheck disable=SC2086
  run 90 ranks.log $tests_of tests/systems/test_esdg_ranked_cuda.py
  local ranked=$?
  [ -n "$dry" ] || tail -15 "$out/ranks.log"

  step "sanitizer: rebuilding on the device"
  sanitize 50 sanitizer.log tests/cuda/test_difference_kernel.py "public_operator"
  local sanitizer=$?

  step "encode and rebuild beside a copy; plain transfer against differences on smoothed twins"
  run 130 difference.txt "$python" scripts/gpu_esdg.py --out "$out/difference.jsonl" --seconds 100
  local measured=$?
  [ -n "$dry" ] || cat "$out/difference.txt"

  reproduction esdg
  local reproduced=$?

  step "summary: tests $tests, equality $equal, ranks $ranked, sanitizer $sanitizer,\
 difference $measured, reproduction $reproduced (124, 130: stopped by the clock)"
  # A sanitizer that the clock stopped has found nothing so far.
  [ "$tests" -eq 0 ] && [ "$equal" -eq 0 ] && [ "$ranked" -eq 0 ] &&
    [[ "$sanitizer" =~ ^(0|124)$ ]] &&
    [ "$measured" -eq 0 ]
}

dgc() {
  step "tests of the operators: attention, scans, labels"
  # shellcheck disable=SC2086
  run 90 tests.log $tests_of tests/cuda/test_attention_kernels.py tests/cuda/test_packed_scans.py \
    tests/cuda/test_label_sweeps.py
  local tests=$?
  [ -n "$dry" ] || tail -15 "$out/tests.log"

  step "DGC against the plain trainer on the device"
  # shellcheck disable=SC2086
  run 100 equality.log $tests_of tests/cuda/test_cuda_dgc.py
  local equal=$?
  [ -n "$dry" ] || tail -15 "$out/equality.log"

  step "sanitizer: attention over rows and over packed steps"
  sanitize 50 sanitizer.log tests/cuda/test_attention_kernels.py "rows or packed"
  local sanitizer=$?

  step "the predictor of chunk times"
  run 100 calibrate.log "$python" -m dgbench calibrate dgc --device cuda --quick
  local calibrated=$?
  [ -n "$dry" ] || tail -8 "$out/calibrate.log"

  reproduction dgc
  local reproduced=$?

  step "summary: tests $tests, equality $equal, sanitizer $sanitizer, calibration $calibrated,\
 reproduction $reproduced (124, 130: stopped by the clock)"
  # A sanitizer that the clock stopped has found nothing so far.
  [ "$tests" -eq 0 ] && [ "$equal" -eq 0 ] && [[ "$sanitizer" =~ ^(0|124)$ ]] &&
    [ "$calibrated" -eq 0 ]
}

gnnflow() {
  step "tests of the operators: graphs on the device, samples, caches"
  # shellcheck disable=SC2086
  run 90 tests.log $tests_of tests/cuda/test_temporal_device.py tests/cuda/test_row_cache_device.py
  local tests=$?
  [ -n "$dry" ] || tail -15 "$out/tests.log"

  step "large graphs in every placement against the CPU's samples"
  # shellcheck disable=SC2086
  run 90 equality.log $tests_of tests/cuda/test_cuda_gnnflow.py
  local equal=$?
  [ -n "$dry" ] || tail -15 "$out/equality.log"

  step "sanitizer: updates and samples"
  sanitize 60 sanitizer.log tests/cuda/test_temporal_device.py "deleted or limit or little"
  local sanitizer=$?

  step "updates, samples by placement, and the cache"
  run 130 placements.txt "$python" scripts/gpu_gnnflow.py --out "$out/placements.jsonl" --seconds 110
  local measured=$?
  [ -n "$dry" ] || cat "$out/placements.txt"

  reproduction gnnflow
  local reproduced=$?

  step "summary: tests $tests, equality $equal, sanitizer $sanitizer, placements $measured,\
 reproduction $reproduced (124, 130: stopped by the clock)"
  # A sanitizer that the clock stopped has found nothing so far.
  [ "$tests" -eq 0 ] && [ "$equal" -eq 0 ] && [[ "$sanitizer" =~ ^(0|124)$ ]] &&
    [ "$measured" -eq 0 ]
}

tgcn() {
  local ends=$part_end
  step "tests of weighted draws, samples and partner sums"
  # shellcheck disable=SC2086
  run 60 tgcn_tests.log $tests_of --tb=short -r fE --durations 5 \
    tests/cuda/test_weighted_kernels.py tests/cuda/test_edge_sampling_kernels.py \
    tests/cuda/test_interact_kernels.py
  local tests=$?
  [ -n "$dry" ] || tail -25 "$out/tgcn_tests.log"

  step "T-GCN on the device against the CPU"
  # shellcheck disable=SC2086
  run 60 tgcn_equality.log $tests_of --tb=short -r fE --durations 5 tests/cuda/test_cuda_tgcn.py
  local equal=$?
  [ -n "$dry" ] || tail -25 "$out/tgcn_equality.log"

  step "draws, samples and sums"
  part_end=$((SECONDS - started + $(left) * 2 / 5))
  run "$(left)" tgcn_operators.txt "$python" scripts/gpu_tgcn.py \
    --out "$out/tgcn_operators.jsonl" --seconds "$(($(left) - 12))"
  local measured=$?
  part_end=$ends
  shown tgcn_operators.txt

  reproduction tgcn
  local reproduced=$?

  step "summary: tests $tests, equality $equal, operators $measured,\
 reproduction $reproduced (124, 130: stopped by the clock)"
  [ "$tests" -eq 0 ] && [ "$equal" -eq 0 ] && [ "$measured" -eq 0 ]
}

# Shares of the time, by what a part needs to say something.
share_of() {
  case $1 in
    lately) echo 6 ;;
    tables | placements) echo 3 ;;
    races) echo 4 ;;
    sanitizers) echo 12 ;;
    roofline) echo 5 ;;
    billion) echo 20 ;;
    profile) echo 2 ;;
    differences) echo 3 ;;
    tgcn) echo 14 ;;
    *) echo 9 ;;
  esac
}
failed=0
for i in "${!parts[@]}"; do
  shares=0
  for part in "${parts[@]:$i}"; do shares=$((shares + $(share_of "$part"))); done
  now=$((SECONDS - started))
  part_end=$((now + (budget - now) * $(share_of "${parts[$i]}") / shares))
  "${parts[$i]}" || failed=1
done
exit $failed
