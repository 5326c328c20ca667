#!/usr/bin/env bash
# compute-sanitizer on the launches of a module of tests/gpu.
#
#     tests/gpu/sanitize.sh FOLDER serving_launches|backward_launches [ARGUMENT...]
#
# First without a tool, which compiles what the build lacks; then memcheck, racecheck and synccheck
# at once. Writes FOLDER/TOOL.log and prints a line for each: its exit code, seconds and last line.
# Exit codes: 0 nothing was found, 1 something, 2 usage. PYTHON names another Python, SANITIZER
# another compute-sanitizer.
set -u -o pipefail

[ $# -ge 2 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
mkdir -p "$1" && OUT=$(cd "$1" && pwd) || exit 2
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 2
export PYTHONPATH=$PWD/py:$PWD${PYTHONPATH:+:$PYTHONPATH}
RUN=("${PYTHON:-python3}" -m "tests.gpu.$2" "${@:3}")

job() { # NAME COMMAND...
  local began=$SECONDS code
  "${@:2}" >"$OUT/$1.log" 2>&1
  code=$?
  printf '%-10s exit code %s, %3d s: %s\n' "$1" "$code" $((SECONDS - began)) \
    "$(tail -n 1 "$OUT/$1.log")"
  return "$code"
}

job plain "${RUN[@]}" || exit 1
pids=() failed=0
for tool in memcheck racecheck synccheck; do
  job "$tool" "${SANITIZER:-compute-sanitizer}" --error-exitcode 99 --tool "$tool" \
    --kernel-regex kns=flash_ "${RUN[@]}" &
  pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
exit "$failed"
