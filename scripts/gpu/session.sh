# shellcheck shell=bash disable=SC2154
# gpu_run.sh session: one call of a run that goes on over any number of calls.

# session [OUT]: install from the parcel (or build), run units until the time is over, leave
# OUT/session.tar.gz. State lies in $state and in that file; either of them resumes.
session() {
  local parcel=${DGBENCH_PARCEL:-build/gpu_parcel} state=${DGBENCH_SESSION:-build/gpu_session}
  local out=${1:-gpu_run} site=${DGBENCH_SITE:-build/gpu_site} python=${PYTHON:-python3}
  local call=${DGBENCH_SECONDS:-540} began=$SECONDS commit='' plan=() stamp='' driver='' status
  [ -f "$parcel/COMMIT" ] && commit=$(cat "$parcel/COMMIT")
  commit=${commit:-$(git rev-parse HEAD 2>/dev/null || true)}
  export DGBENCH_COMMIT=$commit PYTHONUNBUFFERED=1
  [ -d "$parcel/data" ] && export DGBENCH_DATA=${DGBENCH_DATA:-$PWD/$parcel/data}
  plan=("$python" -m dgbench.harness.device_session "$state"
    --commands scripts/gpu/session.yaml --preset "${DGBENCH_PRESET:-quick}")
  [ -n "${DGBENCH_PAPERS:-}" ] && read -ra papers <<<"$DGBENCH_PAPERS" && plan+=(--papers "${papers[@]}")
  [ -d results/reference ] && plan+=(--estimates results/reference)
  [ -f "$state.tar.gz" ] && plan+=(--restore "$state.tar.gz")
  if [ -n "$dry" ]; then
    "${plan[@]}" --seconds "$call" --dry-run
    return
  fi
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || {
    echo "no NVIDIA device answers here; nothing to run" >&2
    return 1
  }
  # What a call before has installed here is used again.
  stamp="$commit $(cd "$parcel" 2>/dev/null && find . -name '*.whl' | sort | xargs -r cat | cksum)"
  if [ "$(cat "$site/.installed" 2>/dev/null)" != "$stamp" ]; then
    rm -rf "$site"
    mkdir -p "$site" "$out"
    if compgen -G "$parcel/wheels/dgbench-*.whl" >/dev/null; then
      "$python" -m pip install -q --no-index --no-deps --no-compile --target "$site" \
        "$parcel"/wheels/*.whl || return 1
    else
      compgen -G "$parcel/wheels/*.whl" >/dev/null && { "$python" -m pip install -q --no-index \
        --no-deps --no-compile --target "$site" "$parcel"/wheels/*.whl || return 1; }
      "$python" -m pip install -q --no-build-isolation --no-deps --upgrade --target "$site" \
        -C build-dir="$site/.build" . || return 1
    fi
    # That of the parcel is of the same commit as its wheel.
    if [ -f "$parcel/kernel_driver" ]; then
      install -m 755 "$parcel/kernel_driver" "$site/kernel_driver" || return 1
    elif [ -d "$site/.build" ]; then
      driver=$(built_driver "$site/.build") && install -m 755 "$driver" "$site/kernel_driver"
    fi
    echo "$stamp" >"$site/.installed"
  fi
  export DGBENCH_DRIVER=$PWD/$site/kernel_driver
  export PYTHONPATH="$PWD/$site${PYTHONPATH:+:$PYTHONPATH}"
  export DGBENCH_CACHE=${DGBENCH_CACHE:-$PWD/$state/cache}
  mkdir -p "$out"
  "${plan[@]}" --seconds "$((call - (SECONDS - began)))"
  status=$?
  [ -f "$state/session.tar.gz" ] && cp "$state/session.tar.gz" "$out/"
  return $status
}
