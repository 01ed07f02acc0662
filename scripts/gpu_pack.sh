#!/usr/bin/env bash
# Make a parcel for a machine without a network: wheels with compiled operators and of what the
# machine lacks, the driver of the kernels, small real data, the commit.
#
#   scripts/gpu_pack.sh [FOLDER]     default: build/gpu_parcel; DGBENCH_WHEELS=FOLDER/wheels gpu_run.sh
#
# Settings:
#   PYTHON              of the measuring machine's version, 3.12 or newer (default: python3.12). The
#                       wheel is abi3: it serves that Python and all newer ones. Without one the
#                       operators are compiled on the measuring machine, on its first call.
#   DGBENCH_CUDA        compute capability of its devices (default: 90)
#   DGBENCH_DATA        folder of real data to take small sets from
#   DGBENCH_PACK_DATA   their folders in it (default: those below)
#   DGBENCH_PACK_BUILD  where compiled files stay, so that packing again compiles what changed
#                       (default: build/gpu_pack)
# All of it is held below 40 MiB; a parcel that is larger is refused.
set -eu -o pipefail
cd "$(dirname "$0")/.."
if [ $# -gt 1 ] || [[ "${1:-}" == -* ]]; then
  sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0" >&2
  exit 2
fi
parcel=${1:-build/gpu_parcel}
most=$((40 << 20))
rm -rf "$parcel"
mkdir -p "$parcel/wheels"

# Uncommitted changes and new files are part of what is measured, so they are part of the stamp.
commit=$(git rev-parse HEAD)
if [ -n "$(git status --porcelain)" ]; then
  changes=$({
    git diff HEAD
    git ls-files -z --others --exclude-standard | xargs -0r sha256sum
  } | sha256sum | cut -c1-8)
  commit="$commit+$changes"
fi
echo "$commit" >"$parcel/COMMIT"

python=${PYTHON:-python3.12}
if "$python" -c 'import sys; raise SystemExit(sys.version_info < (3, 12))' 2>/dev/null; then
  work=${DGBENCH_PACK_BUILD:-build/gpu_pack}
  mkdir -p "$work"
  work=$(cd "$work" && pwd)
  "$python" -m venv "$work/venv"
  "$work/venv/bin/pip" install -q "scikit-build-core>=0.10" "nanobind>=2.4" ninja "cmake>=3.25"
  # The compiled files of this build are found by the tools of the same folder.
  PATH="$work/venv/bin:$PATH" "$work/venv/bin/pip" wheel -q --no-build-isolation --no-deps \
    -w "$parcel/wheels" -C build-dir="$work/build" -C wheel.py-api=cp312 \
    -C cmake.define.DGBENCH_PORTABLE=ON -C cmake.define.DGBENCH_CUDA="${DGBENCH_CUDA:-90}" .
  if ! compgen -G "$parcel/wheels/dgbench-*-abi3-*.whl" >/dev/null; then
    echo "the wheel is not abi3: $(cd "$parcel/wheels" && echo dgbench-*.whl)" >&2
    exit 1
  fi
  "$work/venv/bin/cmake" --build "$work/build" --target kernel_driver
  cp "$(find "$work/build" -name kernel_driver -type f -perm -u+x | head -1)" "$parcel/"
else
  echo "no Python 3.12 or newer ($python): the operators will be compiled on the measuring machine" >&2
fi
PYTHON=${PYTHON_OF_PIP:-python3} bash scripts/gpu_wheels.sh "$parcel/wheels"

if [ -n "${DGBENCH_DATA:-}" ]; then
  for set in ${DGBENCH_PACK_DATA:-england-covid pems08 epinions wikipedia amlsim college-msg}; do
    if [ -d "$DGBENCH_DATA/$set" ]; then
      mkdir -p "$parcel/data"
      cp -r --no-preserve=mode "$DGBENCH_DATA/$set" "$parcel/data/"
    else
      echo "no $set in DGBENCH_DATA; it will be a twin or missing" >&2
    fi
  done
fi

bytes=$(du -sb "$parcel" | cut -f1)
if [ "$bytes" -gt "$most" ]; then
  echo "the parcel has $((bytes >> 20)) MiB, at most $((most >> 20)) may travel; name fewer sets in DGBENCH_PACK_DATA" >&2
  exit 1
fi
find "$parcel" -type f -printf '%s %P\n' | sort -k2 >"$parcel/MANIFEST"
echo "$parcel: $((bytes >> 20)) MiB, commit $commit"
