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
BUGS = (
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
