#!/usr/bin/env bash
# Written by flash-attention-WS-hopper.py --mode create_scripts; runs in any folder, and leaves its
# files there. PYTHON names another Python. Exit codes: 0 ok, 1 a result was wrong, 2 usage, 3 some
# of it failed, 4 no data, 130 interrupted.
set -u -o pipefail

DEFAULT_PYTHON=@PYTHON@
PYTHON=${PYTHON:-$DEFAULT_PYTHON}
TOOL=@TOOL@
# Of the tool, fixed when this script was written.
OPTIONS=(@OPTIONS@)

die() { # CODE MESSAGE [FILE]: leaves no empty file behind
  [ $# -lt 3 ] || [ -s "$3" ] || rm -f -- "$3"
  printf '%s: %s\n' "${0##*/}" "$2" >&2
  exit "$1"
}

trap 'exit 130' INT
[ $# -eq 0 ] || die 2 "takes no arguments: create it anew with other options of the tool"
command -v "$PYTHON" >/dev/null || die 2 "there is no Python at $PYTHON: name one with PYTHON"
[ -f "$TOOL" ] || die 2 "$TOOL is not there any more: create this script anew"
