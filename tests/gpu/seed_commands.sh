#!/usr/bin/env bash
# The commands of the WS analysis tool's seed, as they stand there, and the files that they promise.
#
#     tests/gpu/seed_commands.sh FOLDER [scripts benchmark analysis nvtx ncu manual compare]
#
# In FOLDER the tool is found under its bare name, as in the seed. Needs a Hopper GPU, a build with
# KERNELS=hopper, and triton; ncu for `ncu` and `manual`. Exit codes: 0 all there, 1 something is
# not, 2 usage. PYTHON names another Python. With clocks left alone: manual profiles get
# `--clock-control none`, which the seed's have not.
set -u -o pipefail

[ $# -ge 1 ] || { sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
FOLDER=$1
shift
PARTS=("$@")
[ ${#PARTS[@]} -gt 0 ] || PARTS=(scripts benchmark analysis nvtx ncu manual compare)
mkdir -p "$FOLDER" && cd "$FOLDER" || exit 2
ln -sf "$ROOT/tools/benchmark/flash-attention-WS-hopper.py" .
python() { "${PYTHON:-python3}" "$@"; }

summary=()
bad=0
run() { # NAME COMMAND...: its output goes to NAME.log
  local began=$SECONDS code
  "${@:2}" >"$1.log" 2>&1
  code=$?
  [ "$code" -eq 0 ] || bad=1
  [ "$code" -eq 0 ] || tail -n 12 "$1.log" | sed 's/^/    | /'
  summary+=("$(printf '%-22s exit code %s, %3d s' "$1" "$code" $((SECONDS - began)))")
}
promise() { # FILE...
  local file
  for file in "$@"; do
    if [ -s "$file" ]; then
      summary+=("$(printf '  %9d bytes  %s' "$(stat -c %s "$file")" "$file")")
    else
      summary+=("  MISSING or empty: $file")
      bad=1
    fi
  done
}

for part in "${PARTS[@]}"; do
  case $part in
    scripts)
      run create_scripts python flash-attention-WS-hopper.py --mode create_scripts
      promise nvtx_analysis.sh ncu_analysis.sh compare_analysis.sh
      ;;
    benchmark)
      run benchmark python flash-attention-WS-hopper.py --mode benchmark --lang zh
      promise ws_results/{benchmark.csv,tflops.png,time.png,bandwidth.png}
      ;;
    analysis)
      run analysis python flash-attention-WS-hopper.py --mode analysis
      promise ws_results/roofline.png
      ;;
    nvtx)
      run nvtx_analysis ./nvtx_analysis.sh
      if command -v nsys >/dev/null; then
        promise nvtx_profile.nsys-rep nvtx_stats.txt
      else
        summary+=("  nsys is absent: the trace of torch.profiler stands for its report")
        promise nvtx_profile.trace.json nvtx_stats.txt
      fi
      ;;
    ncu)
      run ncu_analysis ./ncu_analysis.sh
      for n_ctx in 128 8192; do
        for provider in triton-ws-fp16 triton-ws-pp-fp16; do
          promise "ncu_results/ncu_${provider}_$n_ctx.ncu-rep" \
            "ncu_results/report_${provider}_$n_ctx.txt"
        done
      done
      run ncu_raw ncu -i ncu_results/ncu_triton-ws-fp16_128.ncu-rep --page raw
      ;;
    manual)
      run ncu_ws_128 ncu --clock-control none --set full -o ncu_ws_128.ncu-rep --force-overwrite \
        "${PYTHON:-python3}" flash-attention-WS-hopper.py --mode ncu --n_ctx 128 \
        --provider triton-ws-fp16
      run ncu_ws_pp_8192 ncu --clock-control none --set full -o ncu_ws_pp_8192.ncu-rep \
        --force-overwrite "${PYTHON:-python3}" flash-attention-WS-hopper.py --mode ncu \
        --n_ctx 8192 --provider triton-ws-pp-fp16
      promise ncu_ws_128.ncu-rep ncu_ws_pp_8192.ncu-rep
      run manual_report python flash-attention-WS-hopper.py --mode ncu \
        --report ncu_ws_pp_8192.ncu-rep
      ;;
    compare)
      run compare_analysis ./compare_analysis.sh
      promise ws_results/{benchmark.txt,analysis.txt}
      ;;
    *)
      printf '%s\n' "unknown part: $part" >&2
      exit 2
      ;;
  esac
done
printf '%s\n' "${summary[@]}" | tee summary.txt
exit "$bad"
