# shellcheck shell=bash disable=SC2154
# Parts of gpu_run.sh that are a paper's: its tests, its operators, its experiments.

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

  step "sanitizer: overlaps, slices and arrived topology"
  sanitize 70 sanitizer.log memcheck overlap slices sliced wire
  local sanitizer=$?

  step "operators"
  run 80 operators.txt "$python" scripts/gpu_tables.py --out "$out/operators.jsonl" --seconds 60
  local measured=$?
  [ -n "$dry" ] || cat "$out/operators.txt"

  step "the tuner's table of gains"
  run 50 calibrate.log "$python" -m dgbench calibrate pipad --device cuda --quick
  local calibrated=$?
  [ -n "$dry" ] || tail -5 "$out/calibrate.log"

  reproduction pipad
  local reproduced=$?

  step "summary: tests $tests, equality $equal, sanitizer $(verdict "$sanitizer"), operators $measured,\
 calibration $calibrated, reproduction $reproduced (124, 130: stopped by the clock)"
  [ "$tests" -eq 0 ] && [ "$equal" -eq 0 ] && [ "$sanitizer" -eq 0 ] &&
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
  sanitize 50 sanitizer.log memcheck difference
  local sanitizer=$?

  reproduction esdg
  local reproduced=$?

  step "summary: tests $tests, equality $equal, ranks $ranked, sanitizer $(verdict "$sanitizer"),\
 reproduction $reproduced (124, 130: stopped by the clock)"
  [ "$tests" -eq 0 ] && [ "$equal" -eq 0 ] && [ "$ranked" -eq 0 ] && [ "$sanitizer" -eq 0 ]
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
  sanitize 50 sanitizer.log memcheck attend_rows packed_attention
  local sanitizer=$?

  step "the predictor of chunk times"
  run 100 calibrate.log "$python" -m dgbench calibrate dgc --device cuda --quick
  local calibrated=$?
  [ -n "$dry" ] || tail -8 "$out/calibrate.log"

  reproduction dgc
  local reproduced=$?

  step "summary: tests $tests, equality $equal, sanitizer $(verdict "$sanitizer"), calibration $calibrated,\
 reproduction $reproduced (124, 130: stopped by the clock)"
  [ "$tests" -eq 0 ] && [ "$equal" -eq 0 ] && [ "$sanitizer" -eq 0 ] &&
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
  sanitize 60 sanitizer.log memcheck temporal_hop temporal_offsets scatter_pieces row_cache
  local sanitizer=$?

  step "updates, samples by placement, and the cache"
  run 130 placements.txt "$python" scripts/gpu_gnnflow.py --out "$out/placements.jsonl" --seconds 110
  local measured=$?
  [ -n "$dry" ] || cat "$out/placements.txt"

  reproduction gnnflow
  local reproduced=$?

  step "summary: tests $tests, equality $equal, sanitizer $(verdict "$sanitizer"), placements $measured,\
 reproduction $reproduced (124, 130: stopped by the clock)"
  [ "$tests" -eq 0 ] && [ "$equal" -eq 0 ] && [ "$sanitizer" -eq 0 ] &&
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
