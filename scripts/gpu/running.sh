# shellcheck shell=bash disable=SC2154
# What every part of gpu_run.sh uses: limits of time, logs, sanitizers.

# Seconds left to the part that runs.
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

# built_driver FOLDER: builds the driver of the kernels where the operators were compiled, and says
# where it is; nothing where it could not be built.
built_driver() {
  cmake --build "$1" --target kernel_driver >&2 &&
    find "$1" -name kernel_driver -type f -perm -u+x | head -1
}

# sanitize SECONDS LOG TOOL [CASE...]: a tool of compute-sanitizer over cases of the driver, all
# where none is named. Exits as scripts/gpu/sanitize.sh does, and 124 where the clock stopped it
# before it found anything.
sanitize() {
  local limit=$1 log=$2
  shift 2
  run "$limit" "$log" bash scripts/gpu/sanitize.sh "$@"
  local status=$?
  [ -n "$dry" ] && return 0
  if [ "$status" -eq 124 ] && grep -qE "$findings" "$out/$log"; then status=9; fi
  grep -E "SUMMARY|WRONG|cases right" "$out/$log" | tail -5
  return $status
}

findings="^=+ .*(Invalid|Misaligned|Race reported|hazard|Uninitialized|Barrier error)"

# What an exit code of `sanitize` means.
verdict() {
  [ -n "$dry" ] && echo "not run" && return
  case $1 in
    0) echo "found nothing" ;;
    9) echo "FOUND SOMETHING" ;;
    124 | 137) echo "not finished" ;;
    3) echo "not run" ;;
    *) echo "FAILED ($1)" ;;
  esac
}

# shown LOG: a table that was written, without the warnings before it.
shown() { [ -n "$dry" ] || grep -v -i warn "$out/$1" | tail -"${2:-200}"; }
