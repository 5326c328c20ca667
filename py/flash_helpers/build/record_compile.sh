#!/bin/sh
# Runs one compiler or linker command for ninja:  record_compile.sh COMPILER ARGUMENTS… -o OBJECT …
#
# The object appears under its name only when it is complete: a compiler killed half way leaves no file that a
# later build takes for good. Beside it stays OBJECT.log with the compile time and what the compiler said
# (ptxas -v: registers, spills, barriers), for the build report of this and of every later, incremental build.
# The log ends with a checksum of what stands above it and of the object, by which later builds find damage
# (sealed.py reads it).
#
# A shell script, because it starts in one millisecond and Python in twenty; there may be hundreds of units.
object=
dependencies=
by_nvcc=
previous=
remaining=$#
while [ "$remaining" -gt 0 ]; do
  argument=$1
  shift
  # Relative to the build directory, where ninja runs this: nvcc splits a -I at commas and takes quotes off, and
  # ninja before 1.12 stops reading a dependency at a quote or an ampersand.
  case $argument in
    "$PWD"/*) argument=${argument#"$PWD"/} ;;
    -I"$PWD"/*) argument=-I${argument#-I"$PWD"/} ;;
  esac
  case $argument in *.cu) by_nvcc=1 ;; esac
  if [ "$previous" = -o ]; then
    object=$argument
    argument=$argument.partial
  fi
  [ "$previous" = -MF ] && dependencies=$argument
  set -- "$@" "$argument"
  previous=$argument
  remaining=$((remaining - 1))
done
[ -n "$object" ] || exec "$@"

log=$object.log
rm -f "$log"
read -r begin _ </proc/uptime
"$@" >"$log.partial" 2>&1
status=$?
read -r end _ </proc/uptime

fail() {
  rm -f "$log.partial" "$object.partial"
  exit "$1"
}
if [ "$status" -ne 0 ]; then
  cat "$log.partial" >&2
  fail "$status"
fi
# ptxas' advisories C7510 to C7517: wgmma instructions are serialised, the kernel is right but several
# times slower. Nobody reads warnings of a build that succeeds.
if grep -E '\(C751[0-7]\)' "$log.partial" >&2; then
  echo "error: ptxas serialised wgmma instructions (above)" >&2
  fail 1
fi
grep -v -E '^ptxas info|^ *[0-9]+ bytes stack frame|^ *[0-9]+ bytes cumulative stack|^$' "$log.partial" >&2

# nvcc, unlike g++, lists what `#line` names as a dependency, beside the staged file that it read. The originals must
# not count: a touched source would be compiled again. The build directory, where ninja runs this, has the
# list of them (staging.py).
if [ -n "$by_nvcc" ] && [ -n "$dependencies" ] && [ -f "$dependencies" ]; then
  LC_ALL=C sed -i -f originals.sed "$dependencies" || fail 1
fi

# Hundredths of a second: the shell has no fractions.
centiseconds=$((${end%.*}${end#*.} - ${begin%.*}${begin#*.}))
{
  echo "compile-centiseconds $centiseconds"
  cat "$log.partial"
} >"$log.new" && rm -f "$log.partial" &&
  checksum=$(cat "$log.new" "$object.partial" | b2sum) &&
  printf '\nsealed %s\n' "${checksum%% *}" >>"$log.new" &&
  mv "$log.new" "$log" && mv "$object.partial" "$object"
