#!/usr/bin/env bash
# Run the driver of the kernels, DGBENCH_DRIVER, under one tool of compute-sanitizer.
#
#   scripts/gpu/sanitize.sh TOOL [CASE...]    TOOL: memcheck, racecheck, synccheck, initcheck or none
#
# Exit code: 0 nothing found, 9 the tool found something, 1 a result is wrong or a launch failed,
# 3 there is no driver or no compute-sanitizer here.
set -u
if [ $# -eq 0 ] || ! [[ "$1" =~ ^(memcheck|racecheck|synccheck|initcheck|none)$ ]]; then
  sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0" >&2
  exit 2
fi
tool=$1
shift
if [ ! -x "${DGBENCH_DRIVER:-}" ]; then
  echo "DGBENCH_DRIVER is '${DGBENCH_DRIVER:-}', which is no program: the kernels were not run" >&2
  exit 3
fi
[ "$tool" = none ] && exec "$DGBENCH_DRIVER" "$@"
PATH="$PATH:/usr/local/cuda/bin"
if ! command -v compute-sanitizer >/dev/null; then
  echo "compute-sanitizer is not here: the kernels were not checked" >&2
  exit 3
fi
exec compute-sanitizer --tool "$tool" --print-limit 20 --error-exitcode 9 "$DGBENCH_DRIVER" "$@"
