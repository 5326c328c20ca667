#!/usr/bin/env bash
# Builds the kernels that KERNELS names (default: tune), measures them on this GPU, and writes the
# fastest to the tuning table. Arguments go to autotune.py; PYTHON names the interpreter.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export KERNELS="${KERNELS:-tune}"
exec "${PYTHON:-python3}" tools/benchmark/autotune.py "$@"
