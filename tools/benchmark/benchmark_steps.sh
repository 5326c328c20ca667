#!/usr/bin/env bash
# Measures the sixteen steps of previous_kernels/ on this GPU: builds them, times them and
# FlashAttention-2 in turns at every length, and counts with ncu at one. About two minutes on an H200.
#
#   benchmark_steps.sh FOLDER        writes FOLDER/steps.jsonl, steps.csv and ncu.csv
#   python tools/analysis/steps_report.py --sweep FOLDER/steps.jsonl --ncu FOLDER/ncu.csv
#
# PYTHON names the interpreter. The exit code is pt_bench.py's, or else ncu_bench.py's.
set -euo pipefail
if [ $# -ne 1 ]; then
  echo "usage: $0 FOLDER" >&2
  exit 2
fi
mkdir -p "$1" || exit 2
out="$(cd "$1" && pwd)"
: > "$out/ncu.csv" || exit 2 # before minutes of measuring
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export KERNELS=previous PYTHONPATH="$PWD/py:$PWD${PYTHONPATH:+:$PYTHONPATH}"
python="${PYTHON:-python3}"

"$python" -m flash_helpers.build
status=0
"$python" tools/benchmark/pt_bench.py --kernels previous --dtypes fp16 --d_heads 128 \
  --seq_lens 512,1024,2048,4096,8192,16384 --providers ours,fa2 --group 0 \
  --out "$out/steps.jsonl" --csv "$out/steps.csv" || status=$?
counted=0
"$python" tools/benchmark/ncu_bench.py --kernels previous --dtypes fp16 --d_heads 128 \
  --seq_lens 1024 --runs 1 --providers ours,v2 \
  --metrics smsp__inst_executed.sum,smsp__inst_executed_op_ldsm.sum \
  --csv > "$out/ncu.csv" || counted=$?
if [ "$status" -ne 0 ]; then exit "$status"; fi
exit "$counted"
