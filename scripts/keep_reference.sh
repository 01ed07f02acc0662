#!/usr/bin/env bash
# Keep a paper's part of a run as its reference on a machine: rows, provenance, verdicts, figures.
#
#   scripts/keep_reference.sh RUN MACHINE/PAPER     such as amd-epyc-2-cores/pipad; RUN: its folder
set -eu
cd "$(dirname "$0")/.."
run=${1:?the folder of a run} name=${2:?MACHINE/PAPER, such as amd-epyc-2-cores/pipad}
paper=$(basename "$name") target=results/reference/$name
[ -f "$run/rows.jsonl" ] || { echo "$run holds no rows.jsonl; give the folder of a run" >&2; exit 2; }
[ -d "$run/figures/$paper" ] || { echo "$run has no figures of '$paper'; draw them: dgbench report" >&2; exit 2; }
[ "$(find "$run/figures" -mindepth 1 -maxdepth 1 -type d | wc -l)" = 1 ] ||
  { echo "$run is of several papers; keep a run of '$paper' alone" >&2; exit 2; }
rm -rf "$target" && mkdir -p "$target"
cp "$run"/claims.json "$run"/provenance.json "$target"
# Where the run was written says nothing about it, and paths of a machine do not belong here.
sed -E '/"command":/ s/ --out (=)?[^ "]+//' "$run/run.json" >"$target/run.json"
gzip -9 -n -c "$run/rows.jsonl" >"$target/rows.jsonl.gz"
for values in "$run/figures/$paper"/*.csv; do
  figure=$(basename "$values" .csv)
  cp "$values" "$target"
  cp "${values%.csv}-full.png" "$target/$figure.png"
done
echo "kept in $target"
