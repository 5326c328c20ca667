"""Those in the Hopper family's gradients of packed sequences."""

from __future__ import annotations

from tests.mutation import Bug

_GRADIENTS = "flash_attention/serving/gradients.py"
_FUSED = "csrc/include/flash/sm90_bwd_fused_serve"
_FUSED_TEST = "tests/serving/test_hopper_gradients.py"
_LENGTHS = f"{_FUSED_TEST}::test_gradients_of_packed_sequences[lengths]"
_WINDOWED = f"{_FUSED_TEST}::test_gradients_of_equal_lengths_with_a_window"
BUGS = (
    Bug("copies that do not end with their sequence", f"{_FUSED}/sequences.cuh",
        "max(min(n_rows - row, kRows), 0);", "kRows;", (_LENGTHS,)),
    Bug("copies with a row of the next sequence", f"{_FUSED}/sequences.cuh",
        "min(n_rows - row, kRows)", "min(n_rows - row + 1, kRows)", (_LENGTHS,)),
    Bug("copies that end a row too early", f"{_FUSED}/sequences.cuh",
        "min(n_rows - row, kRows)", "min(n_rows - row - 1, kRows)", (_LENGTHS,)),
    Bug("keys where queries lie", f"{_FUSED}/sequences.cuh",
        "work.rule.seqlen_k, work.k_start", "work.rule.seqlen_k, work.q_start", (_LENGTHS,)),
    Bug("sums in another sequence's rows", f"{_FUSED}/sequences.cuh",
        "(q_start / kRowStatsBlock + sequence)", "(q_start / kRowStatsBlock)", (_LENGTHS,)),
    Bug("every batch is the first", f"{_FUSED}/sequences.cuh",
        "this->batch = sequence;", "this->batch = 0;", (_WINDOWED,)),
    Bug("RowStats of the next sequence's queries", f"{_FUSED}/backward.cuh",
        "end = start + own.seqlen_q;", "end = call.seqlen_q;", (_LENGTHS,)),
    Bug("RowStats of queries further ahead", f"{_FUSED}/backward.cuh",
        "start + first - blocks.before(sequence) * kRowStatsBlock", "start", (
            f"{_FUSED_TEST}::test_gradients_of_packed_sequences[full]",)),
    Bug("blocks that start beside their keys, though a window hides these",
        "csrc/include/flash/tile/sequence_work.cuh", "if (sees_all && end > 0)", "if (end > 0)",
        ("tests/device/tile/test_sequence_work.py",)),
    Bug("no room for sequences that begin", "py/flash_helpers/kernels/backward_args.py",
        "(n_rows // ROW_STATS_BLOCK + batch)", "-(-n_rows // ROW_STATS_BLOCK)", (_LENGTHS,)),
    Bug("steps that take nothing away", "py/flash_helpers/kernels/sm90_bwd/arguments.py",
        "2**64 // RAGGED_ROWS - step", "2**64 // RAGGED_ROWS", (_LENGTHS,)),
    Bug("a map without the last row", "py/flash_helpers/kernels/sm90_bwd/arguments.py",
        "(row, RAGGED_ROWS, chunks", "(row, RAGGED_ROWS - 1, chunks",
        (f"{_FUSED_TEST}::test_the_last_row",)),
    *(Bug(f"{name} is not looked at", _GRADIENTS, line, changed,
          (f"{_FUSED_TEST}::test_what_the_other_family_computes",))
      for name, line, changed in (
          ("deterministic", "rule.deterministic or bool", "bool"),
          ("num_splits", "rule.deterministic or bool(options.num_splits)", "rule.deterministic"),
          ("softcap", '("softcap", options.softcap)', '("softcap", False)'),
      )),
)  # fmt: skip
