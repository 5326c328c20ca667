
# Ranges and kernels on one time line, by Nsight Systems; without it, by torch.profiler.
NSYS=${NSYS:-nsys}
if command -v "$NSYS" >/dev/null; then
  "$NSYS" profile -o nvtx_profile --trace=cuda,nvtx --force-overwrite=true \
    "$PYTHON" "$TOOL" --mode nvtx "${OPTIONS[@]}"
  code=$?
  [ -s nvtx_profile.nsys-rep ] || die 4 "$NSYS (exit code $code) wrote no nvtx_profile.nsys-rep"
  "$NSYS" stats --force-export=true nvtx_profile.nsys-rep | tee nvtx_stats.txt \
    || die 3 "$NSYS stats failed: nvtx_profile.nsys-rep is there, nvtx_stats.txt is not whole"
  profile=nvtx_profile.nsys-rep
else
  printf '%s\n' "${0##*/}: $NSYS (Nsight Systems) is not on PATH, and NSYS names none:" \
    "torch.profiler records the same ranges instead" >&2
  profile=nvtx_profile.trace.json
  "$PYTHON" "$TOOL" --mode nvtx "${OPTIONS[@]}" --trace "$profile" | tee nvtx_stats.txt
  codes=("${PIPESTATUS[@]}") # of the tool and of tee, whose own 1 is no wrong result
  code=${codes[0]}
  [ "$code" -ne 0 ] || [ "${codes[1]}" -eq 0 ] || die 2 "cannot write nvtx_stats.txt in $PWD"
fi
[ -s "$profile" ] || die "$((code ? code : 4))" "there is no $profile" nvtx_stats.txt
printf '%s\n' "written: $profile nvtx_stats.txt"
exit "$code"
