"""Bugs in backward passes, for tests/bugs.py."""

from __future__ import annotations

from tests.mutation import Bug

_AMPERE = "csrc/include/flash/sm80_bwd/backward.cuh"
_GRADIENTS = "tests/backward/test_gradients.py"
_WIDE = f"{_GRADIENTS}::test_lengths[sm80_bwd-256-True-65-129]"
_WORK = (
    "tests/emulator/test_backward_counts.py::test_no_more_work_than_needed"
    "[(FP16, 256, 64, 16, 4, 64, 16, 4): ampere_backward]"
)
_SPLIT = "csrc/include/flash/sm90_bwd_fused/split_heads.cuh"
_SHARED = (
    f"{_GRADIENTS}::test_heads_that_share_few_keys[130-6-6-"
    "(FP16, 128, 128, 64, 2, 2, COPIES): fused_backward]",
)
BUGS = (
    Bug("heads of a thread block left out", _SPLIT,
        "block < first + n; ++block", "block + 1 < first + n; ++block", _SHARED),
    Bug("other heads' keys", _SPLIT,
        "static_cast<unsigned>(this->head) / n_splits", "static_cast<unsigned>(this->head)",
        _SHARED),
    Bug("all heads in each thread block", _SPLIT,
        "this->n_heads /= static_cast<int>(splits);", "", _SHARED),
    Bug("counters that begin with anything", "csrc/include/flash/sm90_bwd_fused/backward.cuh",
        "head_splits(args.call, kConfig.keys_rows) > 1", "false", _SHARED),
    Bug("dK's pass begins while dV's ends", _AMPERE,
        "    __syncthreads();  // the values' gradients are written; every warp", "    //",
        (_WIDE,)),
    Bug("dV of wide heads without dK", _AMPERE,
        "if (args.d_k != nullptr) gradients<", "if (false) gradients<",
        (_WIDE, "tests/backward/test_autograd.py::test_wide_heads")),
    Bug("dV summed in dK's pass again", _AMPERE,
        "gradients<kConfig, L, true, false>(args, work)",
        "gradients<kConfig, L, true, true>(args, work)", (_WORK,)),
    Bug("dV of wide heads that nobody wants", _AMPERE,
        "if (args.d_v != nullptr) ", "",
        ("tests/serving/test_counts.py::test_gradients_of_wide_heads[dense-k-3]",)),
)  # fmt: skip
