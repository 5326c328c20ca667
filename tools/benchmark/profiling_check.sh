#!/bin/bash
# The profiling kit on a GPU, all of it, in about two minutes: bottlenecks of the known kernels and of
# two of ours under ncu, the measured wave curves, flame graphs, the MLP example, the GPU tests.
#
#   tools/benchmark/profiling_check.sh FOLDER
#
# Writes FOLDER/profiling.log, FOLDER/profiling.tar (rows, pictures, ncu's records) and a line for
# each step. PYTHON: the interpreter; default python3. Exit codes: 0 ok, 1 a step failed, 2 usage.
set -u
if [ $# -ne 1 ]; then echo "usage: $0 FOLDER" >&2; exit 2; fi
mkdir -p "$1" && out=$(cd "$1" && pwd) || exit 2
cd "$(dirname "$0")/../.." || exit 2
python=${PYTHON:-python3}
export PYTHONPATH=$PWD/py:$PWD${PYTHONPATH:+:$PYTHONPATH}
data=$out/profiling
mkdir -p "$data"
log=$out/profiling.log
: > "$log"
failed=0

fast='(FP16, 128, 64, 64, 4): async+eager+swizzled+load_2_2_2_tiles+buffer+opt_softmax'
conflicts='(FP16, 128, 64, 64, 4): async+load_0_0_0_tiles'

step() {  # name, command ...
  local name=$1 begun=$SECONDS code
  shift
  echo "== $name: $*" >> "$log"
  "$@" >> "$log" 2>&1
  code=$?
  [ $code -eq 0 ] || failed=1
  echo "$name: exit code $code, $((SECONDS - begun)) s" | tee -a "$log"
}

kit() { local name=$1; shift; step "$name" "$python" tools/benchmark/profiling.py "$@"; }

kit "known bottlenecks" bottleneck --known --save "$data/known.csv"
kit "waves, a kernel made for it" waves --measure --out "$data"
kit "waves, ours" waves --measure --kernel "$fast" --out "$data"
kit "flame graphs" profile block attention mlp --with_stack --out_dir "$data"
kit "benchmark" benchmark block attention mlp matmul
kit "mlp" mlp --num_steps 30 --use_optimizer
kit "our bottlenecks" bottleneck --kernel 'regex:flash_fwd.*' --save "$data/ours.csv" -- \
  "$python" tools/benchmark/run_kernels.py 2048 128 --device cuda --n_runs 1 --seed 1 \
  --kernels "$fast" "$conflicts"
step "tests" "$python" -m pytest -q -m gpu tests/profiling

tar -C "$out" -cf "$out/profiling.tar" profiling && rm -r "$data"
grep -E 'largest deviation|every point|^(right|WRONG)|peak memory|^[a-z-]+: [A-Z]|passed|no data' "$log"
exit $failed
