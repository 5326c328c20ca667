
# Everything is measured once, into a store; the analysis reads its rows from there, and the
# profiles that ncu_analysis.sh left in ncu_results.
mkdir -p ws_results || die 2 "cannot create ws_results in $PWD"
store=ws_results/rows-$(date -u +%Y%m%d-%H%M%S)-$$.jsonl
"$PYTHON" "$TOOL" --mode benchmark --out "$store" "${OPTIONS[@]}" | tee ws_results/benchmark.txt
first=$?
case $first in 0 | 3) ;; *) die "$first" "the benchmark failed: see above" ws_results/benchmark.txt ;; esac
"$PYTHON" "$TOOL" --mode analysis --out "$store" --resume "${OPTIONS[@]}" | tee ws_results/analysis.txt
second=$?
case $second in 0 | 3) ;; *) die "$second" "the analysis failed: see above" ws_results/analysis.txt ;; esac
printf '%s\n' "written: $store ws_results/benchmark.txt ws_results/analysis.txt"
exit "$((first > second ? first : second))"
