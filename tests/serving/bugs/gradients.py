"""Bugs in the gradients of what is served."""

from __future__ import annotations

from tests.mutation import Bug

_SEQUENCES = "csrc/include/flash/sm80_bwd_serve/sequences.cuh"
_WORK = "csrc/include/flash/tile/sequence_work.cuh"
_GRADIENTS = "flash_attention/serving/gradients.py"
_TEST = "tests/serving/test_gradients.py"
_PACKED, _USED = (
    f"{_TEST}::test_{name}"
    for name in ("gradients_of_packed_sequences", "used_rows_alone_have_gradients")
)
SERVING_GRADIENTS = (
    Bug("every sequence has the first one's queries", _WORK,
        "q_start = call.cu_seqlens_q[sequence];", "q_start = call.cu_seqlens_q[0];", (_PACKED,)),
    Bug("every sequence has the first one's keys", _WORK,
        "k_start = call.cu_seqlens_k[sequence];", "k_start = call.cu_seqlens_k[0];", (_PACKED,)),
    Bug("dQ of another sequence", _WORK,
        "d_q_stride_batch + q_start *", "d_q_stride_batch + k_start *", (_PACKED,)),
    Bug("dK of another sequence", _WORK,
        "d_k_stride_batch + k_start *", "d_k_stride_batch + q_start *", (_PACKED,)),
    Bug("RowStats of another sequence", _WORK,
        "row_stats += int64_t{q_start} * 2;", "row_stats += int64_t{q_start};", (_PACKED,)),
    Bug("RowStats of another batch", _WORK,
        "sequence * call.n_heads_q * stats_rows", "sequence * stats_rows",
        (f"{_TEST}::test_gradients_of_equal_lengths_with_a_window",)),
    Bug("queries that are not used have gradients", _WORK,
        "if (call.seqused_q != nullptr)", "if (false)", (_USED,)),
    Bug("keys that are not used have gradients", _WORK,
        "if (call.seqused_k != nullptr)", "if (false)", (_USED,)),
    Bug("the last query that sees a key is left out", _WORK,
        "last_row - further + rule.left;", "last_row - further + rule.left - 1;",
        (f"{_TEST}::test_edges_of_windows",)),
    Bug("the first query that sees a key is left out", _WORK,
        "first_row - further - rule.right;", "first_row - further - rule.right + 1;",
        (f"{_TEST}::test_edges_of_windows",)),
    Bug("a window without end that overflows", _WORK,
        "const int64_t last_query =", "const int last_query =", (_PACKED,)),
    Bug("a window that is one key too narrow behind", _WORK,
        "return nearest <= distance &&", "return nearest < distance &&", (_PACKED,)),
    Bug("a window that is one key too wide ahead", _WORK,
        "distance <= furthest &&", "distance <= furthest + 1 &&", (_PACKED,)),
    Bug("the first queries' window decides for all", _WORK,
        "own.rule.of(last_query).begin > first_key", "false", (_PACKED,)),
    Bug("weights as if nothing were capped", _SEQUENCES,
        "s[m][n][i] = fmaf(-2.0f * cap, ptx::rcp(1.0f + exponential), cap);", "(void)exponential;",
        (_PACKED,)),
    Bug("a soft cap without a slope", _SEQUENCES, "fmaf(-tanh, tanh, 1.0f)", "1.0f", (_PACKED,)),
    Bug("a slope in other units", _SEQUENCES,
        "1.0f / (args.softcap * kLog2e)", "1.0f / args.softcap", (_PACKED,)),
    Bug("a block too few", _WORK,
        "starts[sequence] / kRows + sequence;", "starts[sequence] / kRows;", (_PACKED,)),
    Bug("a search of sequences that ends a step too early",
        "csrc/include/flash/tile/packed_rows.cuh",
        "count = step == 1 ? 0 :", "count = step <= 2 ? 0 :",
        (f"{_TEST}::test_many_empty_sequences",
         "tests/serving/test_cases.py::test_case_06_many_empty_sequences",
         "tests/serving/test_hopper.py::test_many_empty_sequences")),
    Bug("RowStats behind a sequence's end", "csrc/include/flash/sm80_bwd/passing_blocks.cuh",
        "thread < args.seqlen_q - row ? sizeof(RowStats) : 0;", "sizeof(RowStats);", (_PACKED,)),
    Bug("RowStats behind a sequence's end in registers", "csrc/include/flash/sm80_bwd/weights.cuh",
        "row < n_rows ? first_row[row] : kNone", "first_row[row]", (_PACKED,)),
    Bug("dV over rows of V that are still read", "csrc/include/flash/sm80_bwd/epilogue.cuh",
        "  __syncwarp();  // every lane has read the rows\n", "",
        (f"{_TEST}::test_those_that_are_asked_for_alone[v]",)),
    Bug("a sink that attracts", _GRADIENTS, "weights * -dots", "weights * dots", (_PACKED,)),
    Bug("a sink in other units", _GRADIENTS,
        "sinks.float()[:, None] / math.log(2)", "sinks.float()[:, None]", (_PACKED,)),
    Bug("a sink of rows that are of no sequence", _GRADIENTS,
        "    if rule.packed:\n        of_rows", "    if False:\n        of_rows", (_PACKED,)),
    Bug("a sink of rows that are not used", _GRADIENTS,
        'if "seqused_q" in lengths:', "if False:", (_USED,)),
)  # fmt: skip

BUGS = SERVING_GRADIENTS
