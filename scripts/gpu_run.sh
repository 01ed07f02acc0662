#!/usr/bin/env bash
# Build for the GPU that is here, run every CUDA test, measure, and print one table last.
#
#   scripts/gpu_run.sh [OUT]        OUT: folder for the log files and the table (default: ./gpu_run)
#
# Meant for a machine without a network that has torch, nvcc, cmake, ninja, scikit-build-core,
# nanobind, pytest and hypothesis. Takes at most ten minutes. Settings:
#   DGBENCH_WHEELS   folder of wheels for what the machine lacks (msgspec, pooch, ...)
#   DGBENCH_SITE     where to install (default: a temporary folder)
#   PYTHON           interpreter (default: python3)
set -u -o pipefail
cd "$(dirname "$0")/.."
started=$SECONDS
out=$(mkdir -p "${1:-gpu_run}" && cd "${1:-gpu_run}" && pwd)
python=${PYTHON:-python3}
site=${DGBENCH_SITE:-$(mktemp -d)}
left() { echo $((585 - (SECONDS - started))); }
step() { echo "== $1 ($((SECONDS - started)) s)"; }

step "the machine"
nvidia-smi --query-gpu=name,driver_version,compute_cap,memory.total --format=csv,noheader || {
  echo "no NVIDIA device answers here; nothing to run" >&2
  exit 1
}
nvcc --version | tail -2
"$python" --version

step "building"
if [ -n "${DGBENCH_WHEELS:-}" ]; then
  "$python" -m pip install -q --no-index --no-deps --no-compile --target "$site" \
    "$DGBENCH_WHEELS"/*.whl || exit 1
fi
# A build folder of its own: one from another machine may lie in the tree.
timeout "$(left)" "$python" -m pip install -q --no-build-isolation --no-deps --upgrade \
  --target "$site" -C build-dir="$site/.build" . >"$out/build.log" 2>&1 || {
  tail -40 "$out/build.log"
  exit 1
}
export PYTHONPATH="$site${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1

# Out of the tree, so that the installed package is what runs.
work=$(mktemp -d)
cp -r tests scripts pyproject.toml "$work"
mkdir -p "$work/kernels_cuda" && cp -r kernels_cuda/csrc "$work/kernels_cuda"
cd "$work" || exit 1
"$python" -c 'import json; from dgbench.kernels_cuda.build_info import build_info; \
info = build_info(); print(json.dumps(info, indent=1)); \
raise SystemExit(0 if info["cuda"]["usable"] else "CUDA operators: " + info["cuda"]["reason"])' ||
  exit 1

step "tests"
timeout "$(left)" "$python" -m pytest -q -p no:cacheprovider -m cuda tests/cuda \
  2>&1 | tee "$out/tests.log" | tail -25
tests=${PIPESTATUS[0]}

step "sanitizer, small sizes"
if command -v compute-sanitizer >/dev/null && [ "$(left)" -gt 240 ]; then
  timeout 120 compute-sanitizer --tool memcheck --error-exitcode 9 "$python" -m pytest -q \
    -p no:cacheprovider -m cuda tests/cuda/test_cuda_operators.py -k "parts or slices or hub" \
    >"$out/sanitizer.log" 2>&1
  sanitizer=$?
  grep -E "ERROR SUMMARY|passed|failed" "$out/sanitizer.log" | tail -3
else
  sanitizer="not run"
  echo "compute-sanitizer is not here, or too little time is left"
fi

step "measurements"
timeout "$(left)" "$python" scripts/gpu_measure.py --out "$out/measurements.jsonl" \
  --seconds "$(($(left) - 20))" >"$out/table.txt" 2>"$out/measure.log"
measured=$?
[ "$measured" -eq 0 ] || tail -20 "$out/measure.log"

step "summary: tests exit $tests, sanitizer exit $sanitizer, measurements exit $measured"
cat "$out/table.txt"
[ "$tests" -eq 0 ] && [ "$measured" -eq 0 ]
