#!/usr/bin/env bash
# The Hopper family's backward passes on an H200: built, timed beside the peers, tested.
#
#     tests/gpu/backward_check.sh FOLDER
#
# Writes FOLDER/backward.txt and the tests' output beside it. Less than four minutes on 16 cores.
# Exit codes: 0 all passed, 1 something failed, 2 usage, 3 the time was over. PYTHON names another
# Python.
set -u -o pipefail

[ $# -eq 1 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
mkdir -p "$1" && OUT=$(cd "$1" && pwd) || exit 2
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 2
export PYTHONPATH=$PWD/py:$PWD${PYTHONPATH:+:$PYTHONPATH} TORCH_CUDA_ARCH_LIST=9.0a
PYTHON=${PYTHON:-python3}
exec > >(tee "$OUT/backward.txt") 2>&1
left() { echo $(($1 - SECONDS)); }
failed=0

timeout 110 "$PYTHON" -c 'from tests.gpu.backward_times import build
build("hopper-bwd", "hopper-smoke")' || exit 1
echo "== built in $SECONDS s"

timeout "$(left 170)" "$PYTHON" -m tests.gpu.backward_beside_peers "$(left 130)"
code=$?
[ "$code" -eq 0 ] || { echo "times: exit code $code"; failed=$code; }

groups=("fused_backward and test_any_lengths" "fused_backward and not test_any_lengths"
  "hopper_backward and test_any_lengths" "hopper_backward and not test_any_lengths"
  "not (fused_backward or hopper_backward)")
seconds=$(left 235) pids=()
for i in "${!groups[@]}"; do
  timeout "$seconds" "$PYTHON" -m pytest -q tests/gpu/test_backward.py -k "${groups[$i]}" \
    >"$OUT/tests_$i.txt" 2>&1 &
  pids+=($!)
done
for i in "${!groups[@]}"; do
  wait "${pids[$i]}" || { echo "${groups[$i]}: exit code $?"; failed=1; }
  tail -n 2 "$OUT/tests_$i.txt"
done
echo "== all in $SECONDS s"
case $failed in 0 | 3) exit "$failed" ;; *) exit 1 ;; esac
