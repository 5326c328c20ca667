
# Everything is measured once, into a store; the analysis reads its rows from there, and the
# profiles that ncu_analysis.sh left in ncu_results.
mkdir -p ws_results || die 2 "cannot create ws_results in $PWD"
store=ws_results/rows-$(date -u +%Y%m%d-%H%M%S)-$$.jsonl
"$PYTHON" "$TOOL" --mode benchmark --out "$store" "${OPTIONS[@]}" | tee ws_results/benchmark.txt
codes=("${PIPESTATUS[@]}") # of the tool and of tee, whose own 1 is no wrong result
first=${codes[0]}
case $first in 0 | 3) ;; *) die "$first" "the benchmark failed: see above" ws_results/benchmark.txt ;; esac
[ "${codes[1]}" -eq 0 ] || die 2 "cannot write ws_results/benchmark.txt; the rows are in $store"
"$PYTHON" "$TOOL" --mode analysis --out "$store" --resume "${OPTIONS[@]}" | tee ws_results/analysis.txt
codes=("${PIPESTATUS[@]}")
second=${codes[0]}
case $second in 0 | 3) ;; *) die "$second" "the analysis failed: see above" ws_results/analysis.txt ;; esac
[ "${codes[1]}" -eq 0 ] || die 2 "cannot write ws_results/analysis.txt; the rows are in $store"
printf '%s\n' "written: $store ws_results/benchmark.txt ws_results/analysis.txt"
exit "$((first > second ? first : second))"
