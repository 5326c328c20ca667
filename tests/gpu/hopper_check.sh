#!/usr/bin/env bash
# The Hopper family on an H200, without its timings: the GPU tests and compute-sanitizer, all at once.
#
#     KERNELS=all python -m flash_helpers.build && tests/gpu/hopper_check.sh FOLDER
#
# Writes FOLDER/hopper.log and prints a line for each job: its exit code, seconds and last line. One
# minute on 16 cores. The test of a call's cost runs first, alone. Exit codes: 0 all passed, 1 one
# failed, 2 usage. PYTHON names another Python, SANITIZER another compute-sanitizer.
set -u -o pipefail

[ $# -eq 1 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
mkdir -p "$1" && OUT=$(cd "$1" && pwd) || exit 2
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 2
export PYTHONPATH=$PWD/py:$PWD${PYTHONPATH:+:$PYTHONPATH}
PYTHON=${PYTHON:-python3}
LOGS=$(mktemp -d) || exit 2
trap 'rm -rf "$LOGS"' EXIT

job() { # NAME COMMAND...
  local began=$SECONDS code
  "${@:2}" >"$LOGS/$1.log" 2>&1
  code=$?
  echo "$code" >"$LOGS/$1.code"
  printf '%-10s exit code %s, %3d s: %s\n' "$1" "$code" $((SECONDS - began)) \
    "$(tail -n 1 "$LOGS/$1.log")"
}
tests() { job "$1" "$PYTHON" -m pytest -q "${@:2}"; }
RUN=("$PYTHON" tools/benchmark/run_kernels.py 200 --n_runs 1 --device cuda --causal --kernels hopper)
sanitize() { # TOOL ARGUMENT...
  job "$1" "${SANITIZER:-compute-sanitizer}" --error-exitcode 99 --tool "$@"
}
# Looks at our kernels alone: 640 tiles, so that each thread block goes through several.
sanitize_ours() { # TOOL
  sanitize "$1" --kernel-regex kns=flash_fwd_sm90 "${RUN[@]}" --batch 16 --heads 20
}

tests cost tests/gpu/test_flash_attn_func.py -k costs_the_host
tests hopper tests/gpu/test_hopper.py tests/gpu/test_hopper_launch.py \
  tests/gpu/test_flash_attn_func.py --deselect \
  tests/gpu/test_flash_attn_func.py::test_a_call_costs_the_host_less_than_pytorch_s &
tests large tests/gpu/test_large.py &
for tool in memcheck synccheck racecheck; do sanitize_ours "$tool" & done
# It has to see who writes the inputs, too, which takes minutes for so many.
sanitize initcheck "${RUN[@]}" --batch 1 --heads 2 &
wait
for log in "$LOGS"/*.log; do
  echo "===== $(basename "$log" .log)"
  cat "$log"
done >"$OUT/hopper.log"
grep -qvx 0 "$LOGS"/*.code && exit 1
exit 0
