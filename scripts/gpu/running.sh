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

# sanitize SECONDS LOG FILES EXPRESSION [TOOL]: compute-sanitizer over some tests, memcheck if no
# tool is named; files are separated by spaces. Exits 9 if it found something.
sanitize() {
  local tool=${5:-memcheck} ours=
  if [ -z "$dry" ]; then
    if ! command -v compute-sanitizer >/dev/null; then
      echo "   compute-sanitizer is not here"
      return 0
    fi
    # Torch's kernels are not what is looked at; but they write what initcheck must see written.
    [ "$tool" != initcheck ] && compute-sanitizer --help | grep -q -- --kernel-regex &&
      ours="--kernel-regex kns=dgbench"
  fi
  # An allocation of its own for every tensor: in a cached block an overrun stays inside.
  # shellcheck disable=SC2086
  run "$1" "$2" env PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool "$tool" $ours \
    --print-limit 20 --error-exitcode 9 $tests_of $3 ${4:+-k "$4"}
  local status=$?
  [ -n "$dry" ] || grep -E "SUMMARY|passed|failed" "$out/$2" | tail -3
  return $status
}

# shown LOG: a table that was written, without the warnings before it.
shown() { [ -n "$dry" ] || grep -v -i warn "$out/$1" | tail -"${2:-200}"; }
