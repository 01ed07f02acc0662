# shellcheck shell=bash disable=SC2154
# What the steps of gpu_run.sh share: limits of time, logs, the kernels' driver.

# run SECONDS LOG COMMAND...: run with a limit; output goes to LOG. The command has a session of its
# own: nothing of it stays behind, whatever way it ends. A run of dgbench that is ended by SIGTERM
# keeps its rows and still writes its report.
run() {
  local limit=$1 log=$2
  shift 2
  setsid timeout -k 30 "$limit" "$@" >>"$log" 2>&1 &
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
