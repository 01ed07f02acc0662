#!/usr/bin/env bash
# Fill a folder with the wheels that a measuring machine without a network may lack.
#
#   scripts/gpu_wheels.sh FOLDER     then, there: DGBENCH_WHEELS=FOLDER scripts/gpu_run.sh ...
#
# They are for Linux x86-64 and the Python of PYTHON_VERSION (default 3.12). Contenders come without
# their dependencies, as everywhere here; torch, torch-geometric and the build tools must be there.
set -eu -o pipefail
if [ $# -ne 1 ]; then
  sed -n '2,7p' "$0" | sed 's/^# \{0,1\}//' >&2
  exit 2
fi
mkdir -p "$1"
version=${PYTHON_VERSION:-3.12}
abi=cp${version//./}
exec "${PYTHON:-python3}" -m pip download -q --no-deps --only-binary=:all: \
  --python-version "$version" --implementation cp --abi "$abi" --abi abi3 --abi none \
  --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
  --platform manylinux_2_28_x86_64 --platform any --dest "$1" \
  "msgspec>=0.18" platformdirs pyyaml pytest-timeout torch-geometric-temporal==0.56.2
