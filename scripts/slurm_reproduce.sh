#!/usr/bin/env bash
# Reproduce papers as a batch job, one node, all of its GPUs:
#
#   sbatch --gres=gpu:1 scripts/slurm_reproduce.sh pipad --preset full
#
# Arguments go to `dgbench reproduce`. A job that runs out of time is asked to stop two minutes
# before; it keeps its rows, and the same job sent again with `--resume RUN` goes on where it ended.
#SBATCH --job-name=dgbench
#SBATCH --nodes=1
#SBATCH --exclusive
#SBATCH --time=04:00:00
#SBATCH --signal=B:TERM@120
#SBATCH --output=dgbench-%j.log
set -eu -o pipefail
cd "${SLURM_SUBMIT_DIR:-$(dirname "$0")/..}"

# Results and prepared data on a disk that outlives the job.
export DGBENCH_RESULTS=${DGBENCH_RESULTS:-$PWD/results/runs}
export DGBENCH_CACHE=${DGBENCH_CACHE:-$HOME/.cache/dgbench}

# A group of its own, so that a signal reaches nox and the run in it.
setsid ${NOX:-python3 -m nox} -s reproduce -- "$@" &
job=$!
trap 'kill -TERM -- "-$job" 2>/dev/null' TERM INT
status=0
wait "$job" || status=$?
# A signal ends the wait, and nox goes before the run has written its report.
while kill -0 -- "-$job" 2>/dev/null; do sleep 0.2; done
exit "$status"
