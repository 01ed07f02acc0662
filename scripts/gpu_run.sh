#!/usr/bin/env bash
# Build for the GPU that is here, then test and measure, part after part.
#
#   scripts/gpu_run.sh [PART...] [OUT]            OUT: folder for logs and rows, default ./gpu_run
#   scripts/gpu_run.sh --dry-run [PART...] [OUT]  say what would run, and run nothing
#   scripts/gpu_run.sh session [OUT]              one call of a run that goes on over many calls
#
# session: checks, then what answers most claims and predictions per second, of all papers. Call it
# again until nothing is left: it goes on in build/gpu_session, or from build/gpu_session.tar.gz on
# another machine (the file that each call leaves in OUT). What it installs from and reads comes
# from build/gpu_parcel where scripts/gpu_pack.sh has made one. DGBENCH_SECONDS: of a call (540).
#
# Parts, `operators` where none is named; time is shared between them in the order given:
#   operators   tests of the operators, sanitizer, one table of measurements
#   tests       every test that needs a device, of all parts; those that need it alone come last
#   lately      tests of what was changed last or failed before, in one process each
#   tables      PiPAD's operators by width, vector, slice and balance
#   placements  GNNFlow: updates, samples by placement, the feature cache
#   races       PiPAD against PyG-Temporal (pipad/fig10)
#   profile     kernels and launches of a PiPAD step
#   equality    every registered system, and every paper's own, on the device against the CPU
#   ceilings    what the device can do: copies, random reads, latencies, launches, multiplications
#   roofline    every operator against its roof, with launches, registers and spills
#   ledger      every workload that something was predicted of, beside the prediction
#   billion     a twin of 1.47 billion edges on one device: ingest, samples, an epoch
#   sanitizers  memcheck, racecheck, synccheck and initcheck over a driver of every kernel
#   differences ESDG: encode and rebuild, plain transfer against differences (esdg/encoding, fig4)
#   reproduce   the quick experiments of all papers, what is left of the time in equal shares
#   pipad, esdg, dgc, gnnflow, tgcn   a paper: correctness, operators, its experiments
#   all         tests, sanitizers, equality, ceilings, roofline, ledger, placements, reproduce
#
# Meant for a machine without a network that has torch, nvcc, cmake, ninja, scikit-build-core,
# nanobind, pytest and hypothesis. All of it takes less than ten minutes. Settings:
#   DGBENCH_SECONDS  how long all of it may take (default: 560; with `all`: 540)
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
if [ "${1:-}" = session ]; then
  # shellcheck source=scripts/gpu/session.sh
  source scripts/gpu/session.sh
  session "${2:-}"
  exit
fi
parts=()
seconds=560
while [[ "${1:-}" =~ ^(operators|tests|lately|tables|placements|races|profile|equality|ceilings|roofline|ledger|billion|sanitizers|differences|reproduce|pipad|esdg|dgc|gnnflow|tgcn|all)$ ]]; do
  if [ "$1" = all ]; then
    parts+=(tests sanitizers equality ceilings roofline ledger placements reproduce)
    seconds=540
  else
    parts+=("$1")
  fi
  shift
done
[ ${#parts[@]} -eq 0 ] && parts=(operators)
budget=${DGBENCH_SECONDS:-$seconds}
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
# The second at which the part that runs ends; it may also use what those before it left over.
part_end=$budget
for name in running tests measurements papers; do
  # shellcheck source=/dev/null
  source "scripts/gpu/$name.sh" || exit 1
done
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
if [ -z "$dry" ] && [[ " ${parts[*]} " =~ \ (operators|sanitizers|pipad|esdg|dgc|gnnflow)\  ]]; then
  DGBENCH_DRIVER=$(built_driver "$site/.build" 2>"$out/driver.log") || tail -20 "$out/driver.log"
  export DGBENCH_DRIVER
fi

# Out of the tree, so that the installed package is what runs.
if [ -z "$dry" ]; then
  work=$(mktemp -d)
  cp -r tests scripts kernels_cuda pyproject.toml "$work"
  export DGBENCH_CACHE=${DGBENCH_CACHE:-$work/cache}
  cd "$work" || exit 1
  "$python" -c 'import json; from dgbench.kernels_cuda.build_info import build_info; \
info = build_info(); print(json.dumps(info, indent=1)); \
raise SystemExit(0 if info["cuda"]["usable"] else "CUDA operators: " + info["cuda"]["reason"])' ||
    exit 1
fi
tests_of="$python -m pytest -q -p no:cacheprovider -m cuda"

# Shares of the time, by what a part needs to say something.
share_of() {
  case $1 in
    lately) echo 6 ;;
    tables | placements | ceilings) echo 3 ;;
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
