#!/usr/bin/env bash
# Keep a run as the reference of a machine: rows, provenance, verdicts, figures with their values.
#
#   scripts/keep_reference.sh RUN NAME      RUN: its folder; NAME: such as amd-epyc-2-cores
set -eu
cd "$(dirname "$0")/.."
run=${1:?the folder of a run} target=results/reference/${2:?a name for the machine}
[ -f "$run/rows.jsonl" ] || { echo "$run holds no rows.jsonl; give the folder of a run" >&2; exit 2; }
rm -rf "$target" && mkdir -p "$target"
cp "$run"/claims.json "$run"/provenance.json "$target"
# Where the run was written says nothing about it, and paths of a machine do not belong here.
sed -E '/"command":/ s/ --out (=)?[^ "]+//' "$run/run.json" >"$target/run.json"
gzip -9 -n -c "$run/rows.jsonl" >"$target/rows.jsonl.gz"
for values in "$run"/figures/*/*.csv; do
  name=$(basename "$values" .csv)
  cp "$values" "$target"
  cp "$(dirname "$values")/$name-full.png" "$target/$name.png"
done
echo "kept in $target"
