"""Compilers that compile each text once, in this run and the next: the builds of these tests differ
in a line or in their place, and would spend most of their time on the same files.

As ccache does it: g++'s key is the preprocessed text, in which comments and places of files do not
show but __LINE__ does, and the options. nvcc's is what our own files say, without their
comments: it preprocesses for the device and again for the host. Dependencies are those of this
compilation. Lines that `-lineinfo` names in a kept object may be those of another build.
"""

from __future__ import annotations

import contextlib
import hashlib
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from flash_helpers.base.atomic_file import write_atomically
from flash_helpers.base.cache import cache_dir
from flash_helpers.compilers.toolchain import find_host_compiler, find_nvcc

_HOST = r"""#!/bin/sh
previous=
for word; do
  case $word in staged/*.cpp | generated/*.cpp | info/*.cpp) unit=$word ;; esac
  [ "$previous" = -o ] && object=$word
  previous=$word
done
[ -n "$unit" ] && [ -n "$object" ] || exec @REAL@ "$@"

# __FILE__ is the same in every tree.
set -- "$@" "-fmacro-prefix-map=${PWD%/build/*}=tree"
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
    case $word in -I* | -MF | -MT | -fmacro-prefix-map=*) ;; -*) printf '%s\n' "$word" ;; esac
  done
}
text=$(mktemp @STORE@/text.XXXXXX) || exit
preprocess "$text" "$@" || { status=$?; rm -f "$text"; exit "$status"; }
key=$({ options "$@"; cat "$text"; } | sha256sum | cut -d ' ' -f 1)
kept=@STORE@/$key.o
if [ ! -f "$kept" ]; then
  # What it says is shown, and then nothing is kept: it is said again the next time. Nothing here is
  # about speed, so nothing is optimised.
  @REAL@ "$@" -O0 2>"$text" || { status=$?; cat "$text" >&2; rm -f "$text"; exit "$status"; }
  if [ -s "$text" ]; then cat "$text" >&2; rm -f "$text"; exit; fi
  cp "$object" "$text" && mv "$text" "$kept"
  exit
fi
rm -f "$text"
cp "$kept" "$object"
"""


# Begins every nvcc of these tests: it lies in a toolkit of its own, and what takes CMake longest in
# a new build directory is done once in a run: it has nvcc compile a file that identifies it, and
# another (under a new name each time) to see what it links.
NVCC_BEGINS = r"""#!/bin/sh
for word; do
  case $word in generated/*.cu | staged/*.cpp) unit=$word ;; esac
  case $previous in -o) object=$word ;; -MF) dependencies=$word ;; esac
  previous=$word
done
[ "$1" = --dryrun ] && echo "#$ _HERE_="@HERE@ >&2 && exit
if [ "$word" = CMakeCUDACompilerId.cu ]; then
  known=@STORE@/known.$({ printf '%s\n' "$@"; cat "$word"; } | sha256sum | cut -c 1-32)
  if [ ! -d "$known" ]; then
    made=$(mktemp -d @STORE@/made.XXXXXX) || exit
    @REAL@ "$@" >"$made/said" 2>&1 || { cat "$made/said"; rm -r "$made"; exit 1; }
    cp -R . "$made/files" && { mv -T "$made" "$known" || rm -r "$made"; }
  fi
  cp -R "$known/files/." . && cat "$known/said"
  exit
fi
case " $* " in *" -c "*/CMakeCUDACompilerABI.cu" -o CMakeFiles/"*)
  name=${object#CMakeFiles/}
  name=${name%%.dir/*}
  known=@STORE@/tried.$(printf '%s\n' "$@" | sed "s/$name/cmTC_known/g" | sha256sum | cut -c 1-32)
  if [ ! -d "$known" ]; then
    made=$(mktemp -d @STORE@/made.XXXXXX) || exit
    @REAL@ "$@" >"$made/out" 2>&1 || { cat "$made/out"; rm -r "$made"; exit 1; }
    cp "$object" "$made/object" || exit
    sed "s/$name/cmTC_known/g" "$made/out" >"$made/said" || exit
    sed "s/$name/cmTC_known/g" "$dependencies" >"$made/dependencies" || exit
    mv -T "$made" "$known" || rm -r "$made"
  fi
  cp "$known/object" "$object" || exit
  sed "s/cmTC_known/$name/g" "$known/dependencies" >"$dependencies" || exit
  sed "s/cmTC_known/$name/g" "$known/said"
  exit ;;
esac
[ -n "$dependencies" ] && [ -n "$unit" ] || exec @REAL@ "$@"
"""
_NVCC = r"""
find_dependencies() {
  remaining=$#
  while [ "$remaining" -gt 0 ]; do
    word=$1
    shift
    case $word in -c | -MD | -o | "$object") ;; *) set -- "$@" "$word" ;; esac
    remaining=$((remaining - 1))
  done
  @REAL@ "$@" -M
}
find_dependencies "$@" || exit
key=$(
  {
    for word; do
      case $word in -I* | -MF | -MT) ;; -*) printf '%s\n' "$word" ;; esac
    done
    tr -s ' \\' '\n' <"$dependencies" | grep -E '^(staged|generated)/' | sort |
    while read -r file; do
      echo "$file"
      sed -e '/^#line /d' -e 's,//.*,,' -e '/^ *$/d' "$file"
    done
  } | sha256sum | cut -d ' ' -f 1
)
kept=@STORE@/$key
if [ ! -f "$kept.o" ]; then
  said=$(mktemp @STORE@/said.XXXXXX) || exit
  @REAL@ "$@" >"$said" 2>&1 || { status=$?; cat "$said" >&2; rm -f "$said"; exit "$status"; }
  cp "$object" "$said.o" && mv "$said" "$kept.said" && mv "$said.o" "$kept.o" || exit
fi
cat "$kept.said" >&2
cp "$kept.o" "$object"
"""


@dataclass(frozen=True)
class Toolchain:
    nvcc: Path
    host: Path

    def environ(self) -> dict[str, str]:
        return {"CUDACXX": str(self.nvcc), "CXX": str(self.host)}


def write_program(path: Path, text: str, places: Mapping[str, Path]) -> Path:
    """A shell script in which @NAME@ stands for a place."""
    for name, place in places.items():
        text = text.replace(f"@{name}@", shlex.quote(str(place)))
    write_atomically(path, text.encode(), mode=0o755)
    return path


def write_nvcc(toolkit: Path, text: str, store: Path) -> Path:
    """In a folder that has all else from the real one's; also where another worker writes it."""
    nvcc = find_nvcc()
    (toolkit / "bin").mkdir(parents=True, exist_ok=True)
    for name in ("include", "lib", "lib64", "nvvm", "targets"):
        if (nvcc.root / name).exists():
            with contextlib.suppress(FileExistsError):
                (toolkit / name).symlink_to(nvcc.root / name)
    places = {"REAL": nvcc.path, "HERE": toolkit / "bin", "STORE": store}
    return write_program(toolkit / "bin" / "nvcc", NVCC_BEGINS + text, places)


def kept_folder(text: str) -> Path:
    """Of a stand-in with this text for these compilers, in the cache directory: it and what it made
    lie at the same place for all pytest-xdist workers, and for the next run."""
    nvcc, host = find_nvcc(), find_host_compiler()
    parts = (nvcc.path, nvcc.version, host.path, host.version, NVCC_BEGINS, text)
    key = hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()
    return cache_dir("tests", f"compiled-{key[:16]}")


def remembering_compilers() -> Toolchain:
    store = kept_folder(_NVCC + _HOST)
    places = {"REAL": find_host_compiler().path, "STORE": store}
    return Toolchain(
        write_nvcc(store / "toolkit", _NVCC, store), write_program(store / "g++", _HOST, places)
    )
