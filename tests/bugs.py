"""Bugs in the product, and the tests that must fail with each (tests/mutation.py plants them).

Add a line where a test was found that could not fail, or where a check decides about others.
"""

from __future__ import annotations

from .mutation import Bug

_REFERENCE, _TOLERANCE = (
    f"py/flash_helpers/check/{name}.py" for name in ("reference", "tolerance")
)
_STORE = "py/flash_lab/bench/store.py"
_REFERENCE_TEST, _TOLERANCE_TEST = (
    f"tests/reference/test_{name}.py" for name in ("reference", "tolerance")
)
_STORE_TEST, _EMULATOR = "tests/bench/test_store.py", "tests/emulator"
_SM90 = f"{_EMULATOR}/sm90"

REFERENCE = (
    Bug("no mask but for equal lengths", _REFERENCE,
        "            if causal:\n                scores", "            if causal and seqlen_q == "
        "k.shape[1]:\n                scores",
        (f"{_REFERENCE_TEST}::test_causal_against_the_definition",
         f"{_REFERENCE_TEST}::test_causal_means")),
    Bug("the diagonal one key too far", _REFERENCE,
        "key > query + (seqlen_k - seqlen_q)", "key > query + (seqlen_k - seqlen_q) + 1",
        (f"{_REFERENCE_TEST}::test_causal_against_the_definition",
         f"{_REFERENCE_TEST}::test_causal_means")),
    Bug("the diagonal of the first key", _REFERENCE,
        "key > query + (seqlen_k - seqlen_q)", "key > query",
        (f"{_REFERENCE_TEST}::test_causal_against_the_definition",)),
    Bug("blind rows by their place in the chunk", _REFERENCE,
        "seqlen_q - k.shape[1] - rows.start)", "seqlen_q - k.shape[1])",
        (f"{_REFERENCE_TEST}::test_causal_against_the_definition",)),
    Bug("the log-sum-exp 0.05 % off", _REFERENCE,
        "torch.logsumexp(scores, dim=-1)", "torch.logsumexp(scores, dim=-1) * 1.0005",
        (f"{_REFERENCE_TEST}::test_against_the_definition",)),
    Bug("query heads take KV heads in turn", _REFERENCE,
        "k[b, :, head // group].to(dtype).T", "k[b, :, head % k.shape[2]].to(dtype).T",
        (f"{_REFERENCE_TEST}::test_against_the_definition",)),
)  # fmt: skip
TOLERANCE = (
    Bug("every comparison passes", _TOLERANCE, "return self.n_bad_rows == 0", "return True",
        (f"{_TOLERANCE_TEST}::test_every_planted_bug_is_found",
         f"{_TOLERANCE_TEST}::test_an_unwritten_output_does_not_pass")),
    Bug("half as much again is tolerated", _TOLERANCE,
        "\nROW_FACTOR = 1.25", "\nROW_FACTOR = 1.875",
        (f"{_TOLERANCE_TEST}::test_every_planted_bug_is_found",)),
    Bug("all bits are equal", _TOLERANCE,
        "torch.equal(a.view(bits), b.view(bits))", "a.shape == b.shape",
        (f"{_TOLERANCE_TEST}::test_bitwise_equality_looks_at_the_bits",)),
    Bug("NaN passes", _TOLERANCE,
        'error.masked_fill_(~error.isfinite(), float("inf"))',
        "error.masked_fill_(~error.isfinite(), 0.0)",
        (f"{_TOLERANCE_TEST}::test_nan_never_passes_wherever_it_stands",
         f"{_TOLERANCE_TEST}::test_an_unwritten_output_does_not_pass")),
)  # fmt: skip
STORE = (
    Bug("repeated rows are finished twice", _STORE,
        "latest[row.identity] = row", "latest[row.identity + (str(len(latest)),)] = row",
        (f"{_STORE_TEST}::test_a_repeated_measurement_is_finished_once",)),
    Bug("a repeated row keeps its old place", _STORE,
        "latest.pop(row.identity, None)  # a", "pass  # a",
        (f"{_STORE_TEST}::test_a_repeated_measurement_is_finished_once",)),
    Bug("rows are dropped", _STORE, "rows.append(decode(line))", "decode(line)",
        (f"{_STORE_TEST}::test_rows_come_back_as_they_were_written",)),
    Bug("bad lines are dropped", _STORE,
        "bad.append(BadLine(number, str(error), line))", "del error",
        (f"{_STORE_TEST}::test_damage_costs_its_own_line_only",)),
    Bug("rows are not forced to disk", _STORE,
        "            os.fsync(self._descriptor)\n", "",
        (f"{_STORE_TEST}::test_each_append_is_forced_to_disk",)),
    Bug("nobody locks", _STORE, "if not try_lock(lock):", "if False:",
        (f"{_STORE_TEST}::test_two_sweeps_cannot_write_one_store",)),
)  # fmt: skip
EMULATOR = (
    Bug("one kind of race goes by another's name", "py/flash_helpers/emulator/detector/races.py",
        '    "read-after-write",\n    "write-after-read",\n',
        '    "write-after-read",\n    "read-after-write",\n',
        (f"{_EMULATOR}/test_race_rules.py::test_a_rule", f"{_SM90}/test_rules.py::test_a_race")),
    Bug("every schedule is the first", "py/flash_helpers/emulator/door/schedules.py",
        'replace(base, lane_order="reverse")', 'replace(base, lane_order="forward")',
        (f"{_EMULATOR}/test_race_rules.py::test_a_rule",)),
    Bug("no answer is recorded", f"{_EMULATOR}/conformance/suite.py",
        "if fingerprint != kernels.fingerprint(case):", "if fingerprint is not None:",
        (f"{_EMULATOR}/test_conformance.py::test_as_on_the_h200",
         f"{_EMULATOR}/test_conformance.py::test_the_forms_of_the_built_kernels_have_recorded_answers",
         f"{_SM90}/test_sm90_conformance.py::test_as_on_the_h200",
         f"{_SM90}/test_sm90_conformance.py::test_all_else_is_answered",
         f"{_SM90}/test_sm90_conformance.py::"
         "test_the_forms_of_the_built_kernels_have_recorded_answers")),
    Bug("more work than needed is right", f"{_EMULATOR}/work.py",
        "if got != wanted", "if got < wanted",
        (f"{_SM90}/test_hopper_attention.py::test_a_row_without_a_key_in_the_first_block",)),
    Bug("more work than needed is right in Gluon", f"{_SM90}/gluon_attention.py",
        "seen = first + config.BLOCK_M +", "seen = first + 64 +",
        (f"{_SM90}/test_gluon_attention.py::test_right_under_every_schedule",)),
    Bug("no race detector in the campaign", f"{_SM90}/campaign.py",
        "OPTIONS = LaunchOptions(", 'OPTIONS = LaunchOptions(races="off", ',
        (f"{_SM90}/test_hopper_attention.py::test_a_few_mutants",)),
    Bug("survivors count as found", f"{_EMULATOR}/planting.py",
        "if by and not (by_reports and by == WRONG):", "if True:",
        (f"{_EMULATOR}/test_planting.py::test_what_is_not_found_survives",)),
    Bug("any total will do", f"{_EMULATOR}/planting.py",
        "if recorded is not None and total != recorded:", "if False:",
        (f"{_EMULATOR}/test_planting.py::test_another_total_than_recorded_fails",)),
    Bug("the README's total is an old one", "py/flash_helpers/emulator/sm90/README.md",
        "planted 191 found 181", "planted 191 found 180",
        (f"{_EMULATOR}/test_totals.py::test_the_readmes_quote_the_totals",)),
)  # fmt: skip

_SERVE, _CASES = "csrc/include/flash/sm80_serve", "tests/serving/test_cases.py"
_KERNELS = "tests/serving/test_kernels.py"
SERVING = (
    Bug("a window one key too wide", "csrc/include/flash/tile/key_range.cuh",
        "place - min(left, max(place, 0))", "place - 1 - min(left, max(place, 0))",
        (f"{_CASES}::test_case_07_what_nobody_sees_has_no_effect",
         "tests/device/tile/test_key_range.py")),
    Bug("a window that overflows", "csrc/include/flash/tile/key_range.cuh",
        "place - min(left, max(place, 0))", "place - left",
        (f"{_CASES}::test_case_02_a_window_to_the_right_of_the_last_keys",)),
    Bug("a tile too few", f"{_SERVE}/tile.cuh",
        "return start * group / kConfig.B_r + b;", "return start * group / kConfig.B_r;",
        (f"{_CASES}::test_case_05_sequences_without_queries",
         f"{_CASES}::test_case_06_many_empty_sequences")),
    Bug("a search that ends a step too early", f"{_SERVE}/tile.cuh",
        "count = step == 1 ? 0 :", "count = step <= 2 ? 0 :",
        (f"{_CASES}::test_case_06_many_empty_sequences",)),
    Bug("heads counted from the tile's first row", f"{_SERVE}/tile.cuh",
        "kv_head * group + (row + r) % group", "kv_head * group + r % group",
        (f"{_KERNELS}::test_groups",)),
    Bug("keys that nobody sees are read", f"{_SERVE}/keys.cuh",
        "!keys.has(key)", "key >= tile.rule.seqlen_k",
        (f"{_CASES}::test_case_07_what_nobody_sees_has_no_effect",)),
    Bug("offsets of 32 bits", f"{_SERVE}/keys.cuh",
        "const int64_t k = from_page * args.k_stride_page",
        "const int64_t k = static_cast<int>(from_page * args.k_stride_page)",
        (f"{_CASES}::test_case_14_far_pages",)),
    Bug("warps do not wait for each other", f"{_SERVE}/serve.cuh",
        "kConfig.row_warps() > 1", "kConfig.row_warps() > 8",
        (f"{_KERNELS}::test_every_kernel",)),
    Bug("a block that has not arrived", f"{_SERVE}/serve.cuh",
        "ptx::cp_async_wait_group<kStages - 2>();\n    sync", "sync",
        (f"{_KERNELS}::test_every_kernel",)),
    Bug("sums over keys that are still read", f"{_SERVE}/serve.cuh",
        "__syncthreads();  // every warp has read its last block", "",
        (f"{_KERNELS}::test_every_kernel",)),
    Bug("a row's mask of the tile's first rows", f"{_SERVE}/scores.cuh",
        "tile.query(warp_row + half * 8 + lane / 4)", "tile.query(half * 8 + lane / 4)",
        (f"{_KERNELS}::test_every_kernel",)),
    Bug("a soft cap without the scale", f"{_SERVE}/scores.cuh",
        "cap(args.softcap / args.softmax_scale)", "cap(args.softcap)",
        (f"{_KERNELS}::test_every_kernel",)),
    Bug("parts that saw nothing are added", f"{_SERVE}/merge.cuh",
        "if (part_lse == kNegativeInfinity) continue;", "",
        (f"{_CASES}::test_case_01_a_row_without_a_key",)),
    Bug("a sink for each split", f"{_SERVE}/rows.cuh",
        "kPartial || args.sinks == nullptr", "args.sinks == nullptr",
        (f"{_KERNELS}::test_a_sink_counts_once",)),
    Bug("rows that are not used are written", f"{_SERVE}/tile.cuh",
        "if (args.seqused_q != nullptr)", "if (false)",
        (f"{_CASES}::test_case_26_rows_that_are_not_used_stay",)),
    Bug("the tile of a fixed split depends on the batch", "flash_attention/serving/launch.py",
        "    if call.options.num_splits:\n", "    if False:\n",
        (f"{_CASES}::test_case_23_a_sequence_has_the_same_bits_in_every_batch",)),
    Bug("an output over its inputs", "flash_attention/serving/result.py",
        'check_no_overlap({"out": o}, call.tensors)', "pass",
        (f"{_CASES}::test_case_25_an_output_with_strides",)),
    Bug("caches are not looked at", "flash_attention/serving/keys.py",
        "        check_cache(name, x)\n", "        pass\n",
        ("tests/serving/test_arguments.py::test_case_19_what_is_not_supported_is_named",)),
    Bug("padding that is not seen by the reference", "py/flash_helpers/check/serving.py",
        "seen = (keys >= leftpad)", "seen = (keys >= 0)",
        (f"{_KERNELS}::test_the_reference_is_the_rule",)),
)  # fmt: skip

BUGS = (*REFERENCE, *TOLERANCE, *STORE, *EMULATOR, *SERVING)
