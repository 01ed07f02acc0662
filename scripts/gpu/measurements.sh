# shellcheck shell=bash disable=SC2154
# Parts of gpu_run.sh that measure operators and placements, a table and its rows each.

# experiments LOG NAME...: experiments in what time is left; one that the clock stops keeps its rows.
experiments() {
  local log=$1 limit=$(($(left) - 12))
  shift
  run "$limit" "$log" timeout -k 30 "$((limit > 40 ? limit - 25 : limit))" \
    "$python" -m dgbench run "$@" --device cuda --preset "$preset" --out "$out/runs"
  local status=$?
  [ -n "$dry" ] || tail -25 "$out/$log"
  return $status
}

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
  step "PiPAD against PyG-Temporal"
  experiments races.log pipad/fig10
  local status=$?
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

ceilings() {
  step "what the device can do"
  run "$(left)" ceilings.txt "$python" scripts/gpu_ceilings.py --out "$out/ceilings.jsonl" \
    --seconds "$(($(left) - 8))"
  local status=$?
  shown ceilings.txt
  step "summary: ceilings $status"
  return $status
}

ledger() {
  step "what was predicted, and what it takes"
  # The last family is a graph of 191 M edges: it must begin early enough to be made.
  run "$(left)" ledger.txt "$python" scripts/gpu_ledger.py --out "$out/ledger.jsonl" \
    --seconds "$(($(left) - 20))"
  local status=$?
  shown ledger.txt
  step "summary: ledger $status"
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

differences() {
  step "encode and rebuild beside a copy; plain transfer against differences on smoothed twins"
  experiments differences.log esdg/encoding esdg/fig4
  local status=$?
  step "summary: differences $status"
  return $status
}
