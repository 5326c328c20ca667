"""Bugs that no check can find because they change nothing that a user could notice, with the
reason. A line that is changed, moved or gone needs its reason looked at again: a test asks that
each still names a bug that the generator makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .mutants import SourceMutant


@dataclass(frozen=True)
class Reason:
    """`before`: part of the line without the bug; `after`: part of what becomes of it, or of the
    kind of bug; `function`: where it stands, '' for anywhere in the file."""

    family: str
    file: str
    function: str
    before: str
    after: str
    why: str

    def explains(self, family: str, mutant: SourceMutant) -> bool:
        return (
            self.family in (family, "")
            and mutant.file == self.file
            and self.function in ("", mutant.function)
            and self.before in mutant.before
            and (self.after in mutant.after or self.after == mutant.kind)
        )


_HINT = "a hint: nothing depends on it but speed"
_SCHEDULING = "no instruction that computes: it only keeps compilers from moving others"
_LATER = "the buffer is released later: nothing but time"
_INDEPENDENT = "neither needs the other"
_NO_THIRD_GROUP = """the number is another barrier's only where three groups vote and stage in Q,
which no kernel of the sets does"""
_GIGABYTES = "needs more than 2^31 rows: 8 GiB of log-sum-exp"

REASONS: tuple[Reason, ...] = (
    Reason("sm90", "ptx/tma.cuh", "prefetch_tensormap", "prefetch.tensormap", "deleted", _HINT),
    Reason("sm90", "sm90/forward/forward.cuh", "forward", "prefetch_tensormap", "", _HINT),
    Reason(
        "sm90", "ptx/tma.cuh", "tma_store_wait_read", "wait_group.read", "modifier dropped",
        "it waits until the stores have written, too: longer, and never too short",
    ),
    Reason(
        "sm80", "sm80/forward/bounds.cuh", "Bounds", "return;", "deleted",
        "what follows comes to the same for whole blocks without a mask, in a few instructions",
    ),
    Reason(
        "sm80", "sm80/forward/bounds.cuh", "Bounds", "keys_of_all = max(0", "order swapped",
        _INDEPENDENT,
    ),
    Reason(
        "sm80", "sm80/forward/bounds.cuh", "Bounds", "n_whole = keys_of_all", "order swapped",
        _INDEPENDENT,
    ),
    Reason(
        "sm80", "sm80/forward/bounds.cuh", "FragmentPlace", "row = static_cast<int>(",
        "order swapped", _INDEPENDENT,
    ),
    Reason(
        "sm80", "sm80/forward/bounds.cuh", "FragmentPlace", "ptx::forget(thread)", "deleted",
        _SCHEDULING,
    ),
    *(
        Reason(
            "sm80", "sm80/forward/position.cuh", "BlockPosition",
            "if (kAnyLength && args.causal) q_block", kind,
            "each block of queries is computed once all the same: which one first decides how full "
            "the GPU is at the end",
        )
        for kind in ("deleted", "condition negated")
    ),
    Reason(
        "sm80", "sm80/forward/position.cuh", "BlockPosition", "if (kAnyLength && args.causal)",
        "kAnyLength || args.causal", "whole blocks in the other order: each is computed once",
    ),
    *(
        Reason("sm80", f"sm80/forward/{file}", function, before, "order swapped", _INDEPENDENT)
        for file, function, before in (
            ("forward.cuh", "KvStream", "k = copy.source("),
            ("forward.cuh", "issue_v", "load_commit<kConfig>(); v -="),
            ("forward.cuh", "forward", "q_lane.forget(); k_lane.forget();"),
            ("matmuls.cuh", "add_scores", "q.template before_mma<t>(q_lane);"),
            ("matmuls.cuh", "add_scores", "s[m][2 * n], q.at(t, m)"),
            ("matmuls.cuh", "accumulate", "o[m][2 * n], a[m]"),
            ("matmuls.cuh", "pack_scores", "ptx::pack<kConfig.dtype>"),
            ("position.cuh", "BlockPosition", "first_row = static_cast<int>(q_row);"),
            ("position.cuh", "BlockPosition", "q = at(args.q"),
            ("position.cuh", "BlockPosition", "k = at(args.k"),
            ("position.cuh", "BlockPosition", "v = at(args.v"),
            ("position.cuh", "BlockPosition", "o = const_cast<char*>("),
            ("softmax.cuh", "rescale", "alpha[half] = "),
        )
    ),
    Reason(
        "sm80", "sm80/forward/position.cuh", "BlockPosition", "static_cast<int64_t>(batch_head)",
        "static_cast<int>(batch_head)", _GIGABYTES,
    ),
    *(
        Reason("sm80", "ptx/cp_async.cuh", function, "L2::128B", "modifier dropped", _HINT)
        for function in ("cp_async_16", "cp_async_16_zero_fill", "cp_async_16_zero_fill_once")
    ),
    Reason(
        "sm80", "ptx/math.cuh", "mul_rn", "mul.rn.f32", "operands swapped", "a b = b a, to the bit"
    ),
    Reason(
        "sm80", "sm80/config.h", "min_blocks_per_sm", "n_warps <= 4", "arms swapped",
        "a launch bound: how many registers ptxas has to give; spills are refused by the build",
    ),
    Reason(
        "sm80", "sm80/forward/forward.cuh", "forward", "constexpr bool kAddressesInTheWay",
        "constant", "which addresses are computed anew in each block: the same ones",
    ),
    Reason(
        "sm80", "sm80/forward/forward.cuh", "forward", "_lane.forget();", "deleted", _SCHEDULING
    ),
    Reason(
        "sm80", "sm80/forward/forward.cuh", "forward", "if constexpr (!kAnyLength)",
        "negation dropped", "either branch finishes: one computes the places anew",
    ),
    Reason(
        "sm80", "sm80/forward/softmax.cuh", "rescale", "growth[0] > lag[0]", "deleted",
        "rows that need not rise are multiplied by 1, which changes no bit",
    ),
    *(
        Reason(
            "sm80", "tile/load_schedule.h", function, before, kind,
            """when a tile is loaded, and into how many registers: the same tiles all the same;
            tests/device/tile/test_plain_headers.py finds it""",
        )
        for function, before, kind in (
            ("", "kAhead = !kWhole && kDoubleBuffer", "negation dropped"),
            ("wanted_slots", "kSlots = wanted_slots() <", "arms swapped"),
            ("first", "if (kAhead) return tile + kSlots - 1;", "constant"),
        )
    ),
    Reason("", "ptx/scheduling.cuh", "", "asm volatile", "deleted", _SCHEDULING),
    Reason(
        "sm90", "sm90/matmuls.cuh", "issue_output", "wgmma_touch(o); ptx::wgmma_fence();",
        "order swapped", _SCHEDULING,
    ),
    *(
        Reason("sm90", "sm90/matmuls.cuh", function, before, kind, _SCHEDULING)
        for function, before, kind in (
            ("compute_now", "ptx::needed_here(", "order swapped"),
            ("compute_now", "ptx::needed_here(", "deleted"),
            ("hidden", "ptx::forget(", "order swapped"),
            ("hidden", "ptx::forget(", "deleted"),
        )
    ),
    *(
        Reason("sm90", f"sm90/{file}.cuh", function, before, "order swapped", _INDEPENDENT)
        for file, function, before in (
            ("forward/consumer", "take_tile", "work.row = tile.first_row"),
            ("forward/consumer", "middle_blocks", "end_optimistic_step(rows, block_sum);"),
            ("softmax", "exponentiate", "ptx::ex2(kExponents ? a"),
            ("softmax", "exponentiate", "ptx::ex2(kExponents ? b"),
            ("softmax", "finish", "inverse[half] = empty"),
            ("softmax", "row_maxima", "row_maxima_of_positive"),
        )
    ),
    Reason(
        "sm90", "sm90/forward/consumer.cuh", "finish", "ptx::bar_sync(kQRead + group", "deleted",
        """a matmul group is over for all four warps when it is for one, and each warp has waited
        for the last scores (as the emulator's README chooses, and CUTLASS)""",
    ),
    *(
        Reason(
            "sm90", "sm90/forward/kv_blocks.cuh", function, before, "order swapped",
            "a turn decides which group multiplies first, and both are waited for before that",
        )
        for function, before in (
            ("first_scores", "take_turn();"), ("issue_both", "take_turn(); Mm::issue_scores("),
        )
    ),
    Reason(
        "sm90", "sm90/forward/kv_blocks.cuh", "mend", "kEvent + group", "kEvent - group",
        _NO_THIRD_GROUP,
    ),
    Reason("sm90", "sm90/forward/work.cuh", "", "kQRead = 4", "kQRead = 5", _NO_THIRD_GROUP),
    Reason(
        "sm90", "sm90/mask.cuh", "mask_scores", "__all_sync", "deleted",
        "masks what needs none, too: comparisons that come out false",
    ),
    Reason(
        "sm90", "sm90/mask.cuh", "mask_scores", "i < min(kCount", "i <= min(kCount",
        "the first score of the next part, which the same comparison masks there as well",
    ),
    Reason(
        "sm90", "tile/matrix_descriptor.h", "k_major", "1u << 16", "2u << 16",
        """the leading offset of a K-major operand with a swizzle is not used (PTX ISA, leading
        dimension byte offset)""",
    ),
    Reason(
        "sm90", "tile/rows.cuh", "quad_sum", "x, 2)", "x, 3)",
        "lanes 2 n and 2 n + 1 have the same sum by then",
    ),
    Reason(
        "sm90", "ptx/setmaxnreg.cuh", "setmaxnreg_inc", "setmaxnreg.inc", "deleted",
        """ptxas then keeps to what the launch gives, 168 registers: kernels with large blocks spill
        (d 128, block_n 128: 240 bytes), which the build refuses (allowed_spills.toml)""",
    ),
    Reason(
        "sm90", "sm90/forward/forward.cuh", "forward", "ptx::setmaxnreg_inc", "order swapped",
        "as without it: the registers come when the work is done",
    ),
    Reason(
        "sm90", "sm90/forward/forward.cuh", "forward", "threadIdx.x == 0) Producer",
        "threadIdx.x == 1", "one thread of the group, whichever",
    ),
    Reason(
        "sm90", "sm90/forward/producer.cuh", "run",
        "load_k((block - 1) * kBlockN, kv_head, tile.batch); load_v(", "order swapped",
        """each waits for its own ring only, and no V is waited for longer than the K before it is
        held: the K that the consumers want first comes later, nothing else""",
    ),
    *(
        Reason(
            "sm90", "sm90/forward/producer.cuh", f"load_{name}",
            f"mbarrier_arrive_expect_tx(full, kConfig.{name}_bytes()); ptx::tma_load_5d",
            "order swapped",
            """the phase cannot end without the arrival, which announces the bytes in the same step:
            they may have landed before""",
        )
        for name in ("k", "v")
    ),
    *(
        Reason(
            "sm90", "sm90/schedule.cuh", "fixed_position", "const int in_round = round % 2 == 0",
            after, "either way a round gives each block one tile: how even the loads are changes",
        )
        for after in ("arms swapped", "round % 4")
    ),
    Reason(
        "sm90", "sm90/schedule.cuh", "tile", "if (args.causal) {", "condition negated",
        "each tile is in either list once: in which order decides what L2 holds, nothing else",
    ),
    Reason(
        "sm90", "sm90/schedule.cuh", "tile", "row_block = blocks_per_head - 1 - step; batch_head",
        "order swapped", _INDEPENDENT,
    ),
    Reason(
        "sm90", "sm90/config.h", "n_threads", "(n_mma_groups + 1)", "constant",
        """a launch bound: ptxas would have fewer registers to give; the threads that are launched
        are Python's, which tests/config/test_cpp_contracts.py compares with it""",
    ),
    Reason(
        "sm90", "sm90/forward/work.cuh", "", "kEvent = 7", "kEvent = 8",
        "three numbers of named barriers that no other has, below 16",
    ),
    Reason(
        "sm90", "sm90/forward/kv_blocks.cuh", "step", "release_v(); rows.rescale_output(o);",
        "order swapped", _LATER,
    ),
    Reason(
        "sm90", "sm90/forward/kv_blocks.cuh", "release_v", "lane == 0", "lane == 1",
        "all lanes have waited for the matmuls, or met, before: any one of them may arrive",
    ),
    Reason(
        "sm90", "sm90/forward/epilogue.cuh", "store_lse", "const int64_t head", "const int head",
        _GIGABYTES,
    ),
    Reason(
        "sm90", "sm90/forward/epilogue.cuh", "store_lse", "static_cast<int64_t>(tile.batch)",
        "static_cast<int>(tile.batch)",
        "heads of the whole batch: make_plan refuses 2^31 or more, and each is a tile at least",
    ),
    Reason(
        "sm90", "sm90/forward/forward.cuh", "init_barriers", "mbarrier_init", "order swapped",
        "by one thread, before anybody may use one: in any order",
    ),
    Reason(
        "sm90", "sm90/forward/forward.cuh", "forward", "__align__(1024)", "__align__(2048)",
        "more than it must be",
    ),
    *(
        Reason("sm80_serve", f"sm80_serve/{file}", function, before, "order swapped", _INDEPENDENT)
        for file, function, before in (
            ("append.cuh", "Rotation", "cosines = static_cast"),
            ("tile.cuh", "find_queries", "first_query = args.cu_seqlens_q"),
        )
    ),
    Reason(
        "sm80_serve", "sm80_serve/rows.cuh", "partial_row", "int64_t{args.n_rows}", "int{",
        _GIGABYTES,
    ),
)  # fmt: skip


def reason_for(
    family: str, mutant: SourceMutant, reasons: Sequence[Reason] | None = None
) -> Reason | None:
    known = REASONS if reasons is None else reasons
    return next((reason for reason in known if reason.explains(family, mutant)), None)
