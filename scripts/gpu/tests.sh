# shellcheck shell=bash disable=SC2154
# Parts of gpu_run.sh that test: against the CPU, against float64, under sanitizers.

operators() {
  step "tests"
  # shellcheck disable=SC2086
  run "$(left)" tests.log $tests_of tests/cuda
  local tests=$?
  [ -n "$dry" ] || tail -25 "$out/tests.log"

  step "sanitizer, small sizes"
  local sanitizer="not run, too little time is left"
  if [ "$(left)" -gt 240 ]; then
    sanitize 120 sanitizer.log memcheck aggregate slices overlap
    sanitizer=$(verdict $?)
  fi

  step "measurements"
  run "$(left)" table.txt "$python" scripts/gpu_measure.py --out "$out/measurements.jsonl" \
    --seconds "$(($(left) - 20))"
  local measured=$?

  step "summary: tests exit $tests, sanitizer $sanitizer, measurements exit $measured"
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

# Every launcher on small inputs, first as it is and then under each tool. One that the clock stopped
# has not passed.
sanitizers() {
  local tools=(none memcheck racecheck synccheck initcheck) said="" found=0 status
  for i in "${!tools[@]}"; do
    step "${tools[$i]}"
    sanitize "$(($(left) / (${#tools[@]} - i)))" "${tools[$i]}.log" "${tools[$i]}"
    status=$?
    said="$said ${tools[$i]}: $(verdict "$status");"
    [ "$status" -eq 0 ] || found=1
  done
  step "summary:${said%;}"
  return $found
}
