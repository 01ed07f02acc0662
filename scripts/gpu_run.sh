#!/usr/bin/env bash
# Test and measure on the GPU that is here: a plain sequence of commands, each of at most nine minutes.
#
#   scripts/gpu_run.sh [STEP...] [OUT]            OUT: folder for logs and runs, default ./gpu_run
#   scripts/gpu_run.sh --dry-run [STEP...] [OUT]  say what would run, and run nothing
#
# Call it again until it says that nothing is left: a step that was done is left out, a run that the
# clock stopped goes on where it was. Rows are those of any run: `dgbench report`, `compare` and
# scripts/keep_reference.py read OUT/runs/STEP.
#
# Steps, all where none is named, in this order:
#   tests        every test that can share the device      alone      those that need all of it
#   sanitizers   memcheck, racecheck, synccheck and initcheck over a driver of every kernel
#   resources    registers and spills of every kernel, as the compiler says them
#   ceilings     what the device can do
#   aggregation, recurrences, differences, sampling, placements, caches, draws: races of operators
#   billion      a twin of 1.47 billion edges on one device
#   pipad, tgcn, gnnflow, dgc, esdg: a paper's experiments, after what it calibrates
#
# Meant for a machine without a network that has torch, nvcc, cmake, ninja, scikit-build-core,
# nanobind, pytest and hypothesis. Settings:
#   DGBENCH_SECONDS  how long one call may take (default: 540)
#   DGBENCH_WHEELS   folder of wheels for what the machine lacks (scripts/gpu_wheels.sh fills one);
#                    one of dgbench among them (scripts/gpu_pack.sh) is installed and not compiled
#   DGBENCH_DATA     folder of real data; without it the real-only datasets show as missing
#   DGBENCH_SITE     where to install (default: OUT/site)
#   DGBENCH_PRESET   preset of all runs (default: quick)
#   PYTHON           interpreter (default: python3)
set -u -o pipefail
cd "$(dirname "$0")/.." || exit 1
# shellcheck source=scripts/gpu/running.sh
source scripts/gpu/running.sh
dry=
if [ "${1:-}" = --dry-run ]; then
  dry=yes
  shift
fi
all="tests alone sanitizers resources ceilings aggregation recurrences differences sampling
placements caches draws billion pipad tgcn gnnflow dgc esdg"
steps=()
while [[ -n "${1:-}" && " ${all//$'\n'/ } " == *" $1 "* ]]; do
  steps+=("$1")
  shift
done
# shellcheck disable=SC2206
[ ${#steps[@]} -eq 0 ] && steps=($all)
call=${DGBENCH_SECONDS:-540}
if [ $# -gt 1 ] || [[ "${1:-}" == -* ]] || ! [[ "$call" =~ ^[0-9]+$ ]]; then
  sed -n '2,/^set /s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
python=${PYTHON:-python3}
preset=${DGBENCH_PRESET:-quick}
for name in DGBENCH_WHEELS DGBENCH_DATA; do
  if [ -n "${!name:-}" ]; then
    [ -d "${!name}" ] || { echo "$name is '${!name}', which is no folder" >&2; exit 2; }
    export "$name=$(cd "${!name}" && pwd)" # the work goes on in another folder
  fi
done
# What lies beside the wheels in a parcel is of the same commit.
parcel=${DGBENCH_WHEELS:+$(dirname "$DGBENCH_WHEELS")} DGBENCH_DRIVER=${DGBENCH_DRIVER:-}
[ -n "$parcel" ] && [ -x "$parcel/kernel_driver" ] && DGBENCH_DRIVER=$parcel/kernel_driver
if [ -n "$parcel" ] && [ -f "$parcel/COMMIT" ]; then
  commit=$(cat "$parcel/COMMIT")
else
  commit=$(git rev-parse HEAD 2>/dev/null) && { git diff --quiet HEAD || commit="$commit+changed"; }
fi
export DGBENCH_COMMIT=${DGBENCH_COMMIT:-$commit}
out=${1:-gpu_run}
[ -n "$dry" ] || { mkdir -p "$out/runs" "$out/done" && out=$(cd "$out" && pwd); }
installed=$(cat "$out/commit" 2>/dev/null)
if [ -n "$installed" ] && [ "$installed" != "$DGBENCH_COMMIT" ]; then
  echo "$out holds runs of commit $installed, this is $DGBENCH_COMMIT: take another folder" >&2
  exit 2
fi
[ -n "$dry" ] || echo "$DGBENCH_COMMIT" >"$out/commit"
site=${DGBENCH_SITE:-$out/site}
trap 'end_session' EXIT
trap 'exit 130' INT TERM

# left: seconds of this call, at most nine minutes.
left() {
  local now=$((call - SECONDS))
  echo $((now > 540 ? 540 : now))
}

# step NAME COMMAND...: run a command of a step in what time is left, unless it was done.
failed=0 open=0 ended='^0$'
step() {
  local name=$1 status
  shift
  if [ -n "$dry" ]; then
    echo "$name: $*"
    return
  fi
  [ -e "$out/done/$name" ] && return
  if [ "$(left)" -lt 20 ]; then
    open=$((open + 1))
    return
  fi
  echo "== $name ($SECONDS s)"
  run "$(($(left) - 10))" "$out/$name.log" "$@"
  status=$?
  tail -15 "$out/$name.log"
  [[ $status =~ $ended ]] && touch "$out/done/$name"
  case $status in
    0) ;;
    124 | 130 | 137 | 143) open=$((open + 1)) ;;
    *) failed=1 && echo "$name: exit $status" ;;
  esac
}

# measure NAME COMMAND WHAT...: a run of dgbench; one that the clock stopped goes on.
measure() {
  local name=$1 command=$2 begun ended='^[01]$' # 1: a cell failed, which its row says
  shift 2
  begun=$(find "$out/runs/$name" -mindepth 2 -maxdepth 2 -name run.json 2>/dev/null | sort | tail -1)
  if [ -n "$begun" ]; then
    step "$name" "$python" -m dgbench "$command" --resume "$(dirname "$begun")"
  else
    step "$name" "$python" -m dgbench "$command" "$@" --device cuda --preset "$preset" \
      --out "$out/runs/$name"
  fi
}

if [ -z "$dry" ]; then
  nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.max.sm,memory.total --format=csv || {
    echo "no NVIDIA device answers here; nothing to run" >&2
    exit 1
  }
fi
if [ -n "${DGBENCH_WHEELS:-}" ]; then
  step wheels "$python" -m pip install -q --no-index --no-deps --no-compile --target "$site" \
    "$DGBENCH_WHEELS"/*.whl
fi
if compgen -G "${DGBENCH_WHEELS:-}/dgbench-*.whl" >/dev/null; then
  built=wheels
else
  # A build folder of its own: one from another machine may lie in the tree.
  built=build
  step build "$python" -m pip install -q --no-build-isolation --no-deps --upgrade \
    --target "$site" -C build-dir="$site/.build" .
fi
export PYTHONPATH="$site${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
if [ -z "$dry" ]; then
  [ -e "$out/done/$built" ] || exit 1
  # Out of the tree, so that the installed package is what runs.
  work=$(mktemp -d)
  cp -r tests scripts kernels_cuda pyproject.toml "$work"
  export DGBENCH_CACHE=${DGBENCH_CACHE:-$out/cache}
  cd "$work" || exit 1
fi

# Files whose tests fill the device, start ranks on it or read its peak: one process, on its own.
alone="tests/cuda/test_cuda_esdg.py tests/cuda/test_cuda_gnnflow.py tests/runtime/test_ranks.py
tests/runtime/test_transfer_cuda.py tests/systems/test_esdg_ranked_cuda.py"
tested=("$python" -m pytest -q -p "no:cacheprovider" -m cuda "--tb=short" -r fE)
# shellcheck disable=SC2086
for name in "${steps[@]}"; do
  case $name in
    tests) step tests "${tested[@]}" tests $(printf -- '--ignore %s ' $alone) ;;
    alone) step alone "${tested[@]}" $alone ;;
    sanitizers)
      [ -n "$dry$DGBENCH_DRIVER" ] || DGBENCH_DRIVER=$(built_driver "$site/.build" \
        2>"$out/driver.log") || tail -20 "$out/driver.log"
      export DGBENCH_DRIVER
      for tool in none memcheck racecheck synccheck initcheck; do
        step "$tool" bash scripts/gpu/sanitize.sh "$tool"
      done
      ;;
    resources) step resources "$python" scripts/kernel_resources.py --out "$out/kernels.jsonl" ;;
    ceilings | billion) measure "$name" run "operators/$name" ;;
    aggregation)
      measure aggregation run operators/aggregate operators/merged operators/merged_backward \
        operators/aggregation_variants
      ;;
    recurrences)
      measure recurrences run operators/scan operators/packed_scan operators/attention \
        operators/packed_attention
      ;;
    differences) measure differences run operators/rebuild esdg/encoding esdg/fig4 ;;
    sampling) measure sampling run operators/device_edges operators/device_subgraphs ;;
    placements) measure placements run operators/placed_sampling operators/placed_updates ;;
    caches) measure caches run operators/placed_rows ;;
    draws) measure draws run operators/weighted operators/tree_draws operators/partners ;;
    *)
      [[ $name =~ ^(pipad|dgc)$ ]] &&
        step "calibrate-$name" "$python" -m dgbench calibrate "$name" --device cuda --quick
      measure "$name" reproduce "$name"
      ;;
  esac
done
[ -n "$dry" ] && exit
if [ "$open" -gt 0 ]; then
  echo "$open commands are left: call it again"
else
  echo "nothing is left"
fi
exit $failed
