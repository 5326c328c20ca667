
# A profile and a report for every configuration, by Nsight Compute. NCU names the program.
PROVIDERS=(@PROVIDERS@)
LENGTHS=(@LENGTHS@)
# Some of what the report needs is not in `--set full`.
METRICS=@METRICS@

if [ -z "${NCU:-}" ]; then
  for NCU in ncu /usr/local/cuda/bin/ncu /opt/nvidia/nsight-compute/*/ncu; do
    command -v "$NCU" >/dev/null && break
  done
fi
command -v "$NCU" >/dev/null || die 4 "ncu (Nsight Compute) is not on PATH: install it (it comes \
with the CUDA toolkit), or name the program with NCU"
export NCU
mkdir -p ncu_results || die 2 "cannot create ncu_results in $PWD"
: >ncu_results/.probe || die 2 "cannot write ncu_results in $PWD"
rm -f -- ncu_results/.probe

# Tuning launches many kernels: once, before anything is profiled.
providers=$(IFS=,; printf '%s' "${PROVIDERS[*]}")
lengths=$(IFS=,; printf '%s' "${LENGTHS[*]}")
"$PYTHON" "$TOOL" --mode ncu --prepare --provider "$providers" --n_ctx "$lengths" "${OPTIONS[@]}"
worst=$?
case $worst in 0 | 3) ;; *) die "$worst" "nothing is profiled: see above" ;; esac

written=0
for provider in "${PROVIDERS[@]}"; do
  for n_ctx in "${LENGTHS[@]}"; do
    profile=ncu_results/ncu_${provider}_$n_ctx.ncu-rep
    report=ncu_results/report_${provider}_$n_ctx.txt
    log=ncu_results/log_${provider}_$n_ctx.txt
    run=("$PYTHON" "$TOOL" --mode ncu --n_ctx "$n_ctx" --provider "$provider" "${OPTIONS[@]}")
    rm -f -- "$profile" "$report"
    "$NCU" --set full --metrics "$METRICS" --profile-from-start off --clock-control none \
      --target-processes all -o "$profile" --force-overwrite "${run[@]}" >"$log" 2>&1
    "${run[@]}" --report "$profile" --log "$log" >"$report"
    code=$?
    if [ "$code" -eq 0 ]; then
      written=$((written + 1))
      printf '%s\n' "$profile" "$report"
    else
      rm -f -- "$report"
      printf '%s\n' "${0##*/}: $provider, N_CTX=$n_ctx: no report (exit code $code); see $log" >&2
      if [ "$code" -eq 1 ] || [ "$worst" -eq 1 ]; then worst=1; else worst=3; fi
    fi
  done
done
[ "$written" -gt 0 ] || die "$((worst == 1 ? 1 : 4))" "no configuration could be profiled"
exit "$worst"
