#!/usr/bin/env bash
# The planted races and their corrected twins under compute-sanitizer racecheck, as a table.
# Needs nvcc, compute-sanitizer and a GPU. Usage: run_racecheck.sh [ARCHITECTURE, default native]
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
architecture=${1:-native}
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)

# "hazards" of one program as racecheck counts them, or what went wrong.
hazards() { # SOURCE, more flags
  local program="$build/program" log="$build/log"
  "$nvcc" -std=c++20 -lineinfo -arch="$architecture" -DWITH_MAIN "${@:2}" "$1" -o "$program"
  "$sanitizer" --tool racecheck --racecheck-report all --print-limit 1000 "$program" >"$log" 2>&1 ||
    true
  sed -n 's/.*RACECHECK SUMMARY: \(.*\)/\1/p' "$log" | grep . || { echo "failed:" && tail -3 "$log"; }
}

"$sanitizer" --version | tail -1
echo "| kernel | planted | corrected |"
echo "| --- | --- | --- |"
for source in "$here"/*.cu; do
  echo "| $(basename "$source" .cu) | $(hazards "$source") | $(hazards "$source" -DFIXED) |"
done
