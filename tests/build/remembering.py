"""A g++ that compiles each text once: the builds of these tests differ in a line or in their place,
and would spend two thirds of their time on the same two files that include pybind11.

As ccache does it: the key is the preprocessed text, in which comments and places of files do not
show but __FILE__ and __LINE__ do, and the options. Dependencies are those of this compilation.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from flash_helpers.compilers.toolchain import find_host_compiler

_SCRIPT = r"""#!/bin/sh
previous=
for word; do
  case $word in staged/*.cpp | generated/*.cpp | info/*.cpp) unit=$word ;; esac
  [ "$previous" = -o ] && object=$word
  previous=$word
done
[ -n "$unit" ] && [ -n "$object" ] || exec @REAL@ "$@"

# Writes the dependencies too. With -P no line says where the text comes from.
preprocess() {
  into=$1
  shift
  remaining=$#
  while [ "$remaining" -gt 0 ]; do
    word=$1
    shift
    case $word in -c | -o | "$object") ;; *) set -- "$@" "$word" ;; esac
    remaining=$((remaining - 1))
  done
  @REAL@ "$@" -E -P -o "$into"
}
options() {
  for word; do
    case $word in -I* | -MF | -MT) ;; -*) printf '%s\n' "$word" ;; esac
  done
}
text=$(mktemp @STORE@/text.XXXXXX) || exit
preprocess "$text" "$@" || { status=$?; rm -f "$text"; exit "$status"; }
key=$({ options "$@"; cat "$text"; } | sha256sum | cut -d ' ' -f 1)
kept=@STORE@/$key.o
if [ ! -f "$kept" ]; then
  # What it says is shown, and then nothing is kept: it is said again the next time.
  @REAL@ "$@" 2>"$text" || { status=$?; cat "$text" >&2; rm -f "$text"; exit "$status"; }
  if [ -s "$text" ]; then cat "$text" >&2; rm -f "$text"; exit; fi
  cp "$object" "$text" && mv "$text" "$kept"
  exit
fi
rm -f "$text"
cp "$kept" "$object"
"""


def make_compiler(factory: pytest.TempPathFactory) -> Path:
    """Its objects are shared by all pytest-xdist workers of a run."""
    base = factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    store = shared / "objects"
    store.mkdir(exist_ok=True)
    text = _SCRIPT.replace("@REAL@", shlex.quote(str(find_host_compiler().path)))
    compiler = factory.mktemp("remembering") / "g++"
    compiler.write_text(text.replace("@STORE@", shlex.quote(str(store))))
    compiler.chmod(0o755)
    return compiler
