#!/usr/bin/env bash
# Every test that needs a GPU, in one call of limited time: what is done before an issue is ended.
#
#     tests/gpu/everything.sh FOLDER [SECONDS]
#
# Builds all kernels, then runs the tests of what calls cost, alone, then the other files of
# tests/gpu, eight at a time, a minute of random calls, and the largest tensors last. Prints a line
# for each: exit code, seconds, and the last line. Their output is in FOLDER/logs.tgz, packed anew
# after each, so that what has ended is there even if the call is cut off. SECONDS (540): what has
# not ended by then is stopped and counted. Packages that the machine lacks are taken from wheels in
# .whl (on the project's GPU machine prettytable and wcwidth). Exit codes: 0 all passed, 1 something
# failed, 2 usage, 3 the time was over, 4 no GPU. PYTHON names another Python.
set -u -o pipefail

[ $# -ge 1 ] && [ $# -le 2 ] || { sed -n '2,12s/^# \{0,1\}//p' "$0" >&2; exit 2; }
mkdir -p "$1" && OUT=$(cd "$1" && pwd) || exit 2
LIMIT=${2:-540}
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 2
export PYTHONPATH=$PWD/py:$PWD${PYTHONPATH:+:$PYTHONPATH} KERNELS=all
PYTHON=${PYTHON:-python3}
LOGS=$(mktemp -d) && SITE=$(mktemp -d) || exit 2
trap 'rm -rf "$LOGS" "$SITE"' EXIT

"$PYTHON" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' || {
  echo "$PYTHON has no torch that sees a GPU: nothing was run" >&2
  exit 4
}

if compgen -G ".whl/*.whl" >/dev/null; then
  "$PYTHON" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir \
    --target "$SITE" .whl/*.whl || exit 2
  PYTHONPATH+=":$SITE"
fi

COST="costs_the_host or speed"
job() { # NAME COMMAND...
  local began=$SECONDS code left=$((LIMIT - SECONDS))
  # Interrupted, pytest still says what has failed.
  timeout -s INT -k 15 "$((left > 0 ? left : 1))" "${@:2}" >"$LOGS/$1.log" 2>&1
  code=$?
  echo "$code" >"$LOGS/$1.code"
  printf '%-28s exit code %3s, %3d s: %s\n' "$1" "$code" $((SECONDS - began)) \
    "$(tail -n 1 "$LOGS/$1.log")"
  (
    flock 9
    tar -czf "$OUT/logs.part" -C "$LOGS" . 2>/dev/null && mv "$OUT/logs.part" "$OUT/logs.tgz"
  ) 9>"$LOGS/lock"
}
await_room() { while [ "$(jobs -pr | wc -l)" -ge 8 ]; do wait -n; done; }
tests() { # NAME ARGUMENT...
  job "$1" "$PYTHON" -m pytest -q -p no:cacheprovider "${@:2}"
}

job build "$PYTHON" -m flash_helpers.build
[ "$(cat "$LOGS/build.code")" -eq 0 ] || { tail -n 20 "$LOGS/build.log"; exit 1; }
tests costs tests/gpu -k "$COST"
for file in tests/gpu/test_*.py; do
  case $file in */test_large.py) continue ;; esac
  await_room
  tests "$(basename "$file" .py)" "$file" -k "not ($COST)" &
done
for tool in random_calls random_operators; do
  await_room
  job "$tool" "$PYTHON" -m "tests.gpu.$tool" 60 &
done
wait
tests test_large tests/gpu/test_large.py

failed=0 late=0
for code in "$LOGS"/*.code; do
  case $(basename "$code" .code):$(cat "$code") in
    *:0 | test_*:5) ;; # 5: all of a file's tests are those of costs
    *:124) late=$((late + 1)) ;;
    *) failed=$((failed + 1)) ;;
  esac
done
echo "== $failed with failures, $late stopped, all in $SECONDS s"
[ "$failed" -eq 0 ] || exit 1
[ "$late" -eq 0 ] || exit 3
