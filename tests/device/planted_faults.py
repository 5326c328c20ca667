"""Faults of one line in the headers, each with the test that has to find it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flash_helpers.kernel_configs import DType

from . import problems
from .ptx import (
    test_cluster,
    test_convert,
    test_cp_async,
    test_elect,
    test_ldmatrix,
    test_math,
    test_mma,
    test_named_barrier,
    test_reduce,
    test_scheduling,
    test_tma,
    test_wgmma,
)
from .sm80 import configs as sm80_configs
from .sm80 import test_block_copy, test_block_position, test_bounds, test_online_softmax
from .sm80 import test_epilogue as test_sm80_epilogue
from .sm90 import configs as sm90_configs
from .sm90 import test_epilogue as test_sm90_epilogue
from .sm90 import test_mask, test_ring, test_shared_storage, test_softmax, test_tile_schedule
from .sm90 import test_matmuls as test_sm90_matmuls
from .sm90_bwd_fused import test_ordered_work
from .tile import (
    test_gradient_work,
    test_key_range,
    test_operand,
    test_ordered_tiles,
    test_plain_headers,
    test_rows,
    test_visible,
)

PTX, TILE = "flash/ptx", "flash/tile"
_OWN, _GRID = "flash/sm90_bwd_fused/ordered_work.cuh", "flash/tile/ordered_tiles.cuh"
SM80, SM90 = "flash/sm80/forward", "flash/sm90"


@dataclass(frozen=True)
class Fault:
    """With `new` in the place of `old`, which stands once in the header, `test` fails."""

    title: str
    header: str
    old: str
    new: str
    test: Callable[..., None]
    arguments: dict[str, Any] = field(default_factory=dict)

    def plant(self, headers: Path) -> None:
        """Changes a copy of the headers. Raises AssertionError unless `old` stands there once."""
        path = headers / self.header
        text = path.read_text()
        assert text.count(self.old) == 1, f"{self.header}: {text.count(self.old)} times {self.old}"
        path.write_text(text.replace(self.old, self.new))


_SM80, _SM90 = sm80_configs.config(), sm90_configs.config()
_TILES = test_tile_schedule.LAUNCHES[0]
_ORDERED = {"kernel": "many_steps", "problem": (15, 512, 512), "causal": True, "group": 2,
            "splits": 1}  # fmt: skip

FAULTS = [
    # ptx/
    Fault("a product that may be fused", f"{PTX}/math.cuh",
          'asm("mul.rn.f32 %0, %1, %2;\\n" : "=f"(y) : "f"(a), "f"(b));', "y = a * b;",
          test_math.test_mul_rn_is_rounded_before_the_addition, {"c": -1.0}),
    Fault("the halves of a pair exchanged", f"{PTX}/convert.cuh",
          "return cvt_rn_bf16x2_f32(low, high);", "return cvt_rn_bf16x2_f32(high, low);",
          test_convert.test_pairs_are_rounded_to_nearest_even, {"which": 3, "dtype": DType.BF16}),
    Fault("half of a copy's bytes", f"{PTX}/cp_async.cuh",
          '"cp.async.ca.shared.global [%0 + %2], [%1], 16;\\n"',
          '"cp.async.ca.shared.global [%0 + %2], [%1], 8;\\n"',
          test_cp_async.test_sixteen_bytes, {"which": 1, "far": False}),
    Fault("a wait for one group too few", f"{PTX}/cp_async.cuh",
          '"cp.async.wait_group %0;\\n" ::"n"(kPending)',
          '"cp.async.wait_group %0;\\n" ::"n"(kPending + 1)',
          test_cp_async.test_a_group_is_over_when_few_enough_are_in_flight,
          {"pending": 0, "group": 2}),
    Fault("every thread is elected", f"{PTX}/elect.cuh", "selp.u32 %0, 1, 0, elected;",
          "selp.u32 %0, 1, 1, elected;", test_elect.test_one_of_each_warp),
    Fault("matrices that are not transposed", f"{PTX}/ldmatrix.cuh", "m8n8.x4.trans.shared.b16 {%0",
          "m8n8.x4.shared.b16 {%0",
          test_ldmatrix.test_ldmatrix, {"transposed": True, "offset": 0}),
    Fault("two matrices exchanged", f"{PTX}/stmatrix.cuh", '"r"(r0), "r"(r1), "r"(r2), "r"(r3)',
          '"r"(r0), "r"(r2), "r"(r1), "r"(r3)', test_ldmatrix.test_stmatrix_is_the_inverse,
          {"transposed": False, "offset": 0}),
    Fault("two numbers of a vector exchanged", f"{PTX}/reduce.cuh", '"f"(a), "f"(b)',
          '"f"(b), "f"(a)', test_reduce.test_vectors),
    Fault("operands of an mma exchanged", f"{PTX}/mma.cuh", "mma_m16n8k16_f16(c, a, b0, b1);",
          "mma_m16n8k16_f16(c, a, b1, b0);", test_mma.test_products_are_added,
          {"which": 2, "dtype": DType.FP16}),
    Fault("a barrier for half of the threads", f"{PTX}/named_barrier.cuh",
          '"bar.sync %0, %1;\\n" ::"r"(id), "r"(threads)',
          '"bar.sync %0, %1;\\n" ::"r"(id), "r"(threads / 2)',
          test_named_barrier.test_bar_sync_orders_its_own_threads, {"id": 1, "partner": 63}),
    Fault("a value that is not forgotten", f"{PTX}/scheduling.cuh",
          'asm volatile("" : "+r"(value));', "", test_scheduling.test_forget_makes_a_value_opaque),
    Fault("no fence for the copy engine", f"{PTX}/fence.cuh",
          'asm volatile("fence.proxy.async.shared::cta;\\n" ::: "memory");', "",
          test_tma.test_a_box_is_stored_and_clipped,
          {"box": test_tma.BOXES[0], "at": test_tma.PLACES[0]}),
    Fault("a barrier that the copy engine does not see", f"{PTX}/mbarrier.cuh",
          'asm volatile("fence.mbarrier_init.release.cluster;\\n" ::: "memory");', "",
          test_tma.test_a_box_is_loaded,
          {"box": test_tma.BOXES[0], "at": test_tma.PLACES[0], "last": False}),
    *(
        Fault(title, f"{PTX}/cluster.cuh", old, new, test_cluster.test_tiles_are_exchanged,
              {"phases": 2, "early": False})
        for title, old, new in (
            ("an arrival that tells nothing", "mbarrier.arrive.shared::cluster.b64 _",
             "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _"),
            ("the size of the cluster for a rank", "%%cluster_ctarank", "%%cluster_nctarank"),
            ("a cluster's barrier that orders nothing", '"barrier.cluster.arrive.release',
             '"barrier.cluster.arrive.relaxed'),
        )
    ),
    Fault("coordinates exchanged", f"{PTX}/tma.cuh",
          '"r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4), "l"(cache_policy)',
          '"r"(c0), "r"(c1), "r"(c2), "r"(c4), "r"(c3), "l"(cache_policy)',
          test_tma.test_a_box_is_loaded,
          {"box": test_tma.BOXES[0], "at": test_tma.PLACES[1], "last": False}),
    *(Fault(title, f"{PTX}/wgmma.cuh", f'RS("f16", N, COUNT, I0, I1, I2, I3, I4, I5, "{major}")',
            f'RS("f16", N, COUNT, I0, I1, I2, I3, I4, I5, "{1 - major}")',
            test_wgmma.test_products_are_added, {"n": 64, "dtype": DType.FP16, "form": form})
      for title, major, form in (("b that is not transposed", 1, "rs"),
                                 ("b that is transposed", 0, "rs_k"))),
    Fault("two accumulators exchanged", f"{PTX}/wgmma.cuh", '"%40, %41, ', '"%41, %40, ',
          test_wgmma.test_products_are_added, {"n": 96, "dtype": DType.BF16, "form": "ss"}),
    Fault("registers that the compiler thinks it knows", f"{PTX}/wgmma.cuh",
          'asm volatile("" : "+f"(d[i])::"memory");', ";",
          test_wgmma.test_wgmma_touch_makes_registers_opaque),
    # tile/
    Fault("another swizzle", f"{TILE}/shared_tile.h",
          "chunk ^ (row / kRowsOfOnePlace % kSwizzleSpan)", "chunk ^ (row / 2 % kSwizzleRows)",
          test_operand.test_tiles_of_16_by_16,
          {"d_head": 64, "swizzled": True, "columns_first": False, "transpose": False}),
    Fault("a k-tile loaded too late", f"{TILE}/load_schedule.h",
          "if (kAhead) return tile + kSlots - 1;", "if (kAhead) return tile + kSlots;",
          test_plain_headers.test_load_schedule, {"total": 4, "load": 2, "doubled": True}),
    Fault("a descriptor's stride", f"{TILE}/matrix_descriptor.h",
          "kAtomStride = 8 * kSwizzleBytes / 16", "kAtomStride = 16 * kSwizzleBytes / 16",
          test_plain_headers.test_matrix_descriptor, {"swizzle": 128, "rows": 64, "address": 1024}),
    Fault("a loop that forgets its step", f"{TILE}/static_for.cuh",
          "static_for<kBegin + kStep, kEnd, kStep>", "static_for<kBegin + 1, kEnd, kStep>",
          test_plain_headers.test_static_for, {"which": 1, "indices": range(2, 11, 3)}),
    Fault("an operand's slot", f"{TILE}/operand.cuh",
          "fragments[Schedule::slot(kKTile)][kOuter]);", "fragments[0][kOuter]);",
          test_operand.test_operands, {"schedule": 3, "along_rows": False}),
    Fault("the wrong lane in a reduction", f"{TILE}/rows.cuh",
          "return x + __shfl_xor_sync(0xffffffffu, x, 2);",
          "return x + __shfl_xor_sync(0xffffffffu, x, 4);",
          test_rows.test_reductions_over_four_lanes),
    Fault("a key too few by the mask", f"{TILE}/visible.cuh", "- first + row + 1;",
          "- first + row;", test_visible.test_visible_keys,
          {"problem": problems.Problem(96, 130, True)}),
    Fault("a key too many in a window", f"{TILE}/key_range.cuh", "place + right + 1 : seqlen_k",
          "place + right + 2 : seqlen_k", test_key_range.test_ranges_and_blocks,
          {"lengths": (7, 33), "leftpad": 0}),
    Fault("the first query that sees a key left out", f"{TILE}/gradient_work.cuh",
          "first_row - args.seqlen_k + args.seqlen_q)",
          "first_row - args.seqlen_k + args.seqlen_q + L::kColumns)",
          test_gradient_work.test_every_score_that_is_seen_is_met_once,
          {"side": "keys", "n_queries": 50, "n_keys": 100}),
    *(
        Fault(title, f"{TILE}/{file}.cuh", old, new,
              test_gradient_work.test_every_score_that_is_seen_is_met_once,
              {"side": "keys_apart", "n_queries": 100, "n_keys": 50})
        for title, file, old, new in (
            ("a head that ends where the blocks begin anew", "gradient_work",
             "if (block == work.first) ++head;", "if (block == work.begin) ++head;"),
            ("masked steps as if they hid nothing", "masked_steps", "<Hides::kSome>{}",
             "<Hides::kNothing>{}"),
        )
    ),
    *(
        Fault(title, file, old, new, test_ordered_work.test_every_share_has_its_turn,
              {**_ORDERED, "kernel": kernel, "causal": causal})
        for title, file, old, new, kernel, causal in (
            ("the last but one rounds", _OWN, "half : block + 1;", "half : block + 2;",
             "many_steps", False),
            ("nobody of the first half is the last", _OWN, "block > 0 && block < half",
             "block < half", "many_steps", True),
            ("the first half forwards", _GRID, "causal ? early - 1 - block : block", "block",
             "many_steps", True),
            ("the last block of keys too early", _GRID, "rest % heads_of(of), early +",
             "rest % heads_of(of), early / 2 +", "few_steps", False),
        )
    ),
    Fault("one head after the other", f"{TILE}/gradient_work.cuh",
          "const bool is_last = head == work.n_heads - 1;",
          "const bool is_last = (block - work.begin) % 2 == 0;",
          test_ordered_work.test_heads_take_turns_with_each_block_of_queries,
          {"kernel": "many_steps", "problem": (30, 129, 1100), "causal": True}),
    *(
        Fault(title, f"{TILE}/gradient_work.cuh",
              "return block < work.begin || block >= work.end;", f"return {end};",
              test_ordered_work.test_every_share_has_its_turn, _ORDERED)
        for title, end in (
            ("downwards without an end", "block >= work.end"),
            ("upwards without an end", "block < work.begin"),
        )
    ),
    Fault("the first half backwards with keys that heads share",
          _GRID, "n <= kFewBlocks ?", "true ?",
          test_ordered_work.test_heads_take_turns_with_each_block_of_queries,
          {"kernel": "many_steps", "problem": (30, 129, 1100), "causal": True}),
    Fault("sections that are wide all the same", _GRID, "L::kWideForwards || early > 0", "true",
          test_ordered_tiles.test_so_many_heads_take_turns,
          {"kernel": "narrow", "group": 3, "causal": True, "heads": 14}),
    Fault("a first half that is waited for", _GRID,
          "<= kSectionBlocks) return 0;", "< 0) return 0;",
          test_ordered_work.test_nobody_waits_for_a_first_half_if_all_begin_at_once,
          {"kernel": "many_steps", "batch": 4, "forwards": True}),
    *(
        Fault(title, f"flash/sm90_bwd_fused/{file}", old, new,
              test_ordered_work.test_parts_of_shared_heads_follow_each_other,
              {"kernel": "many_steps", "problem": (2, 300, 200), "causal": True})
        for title, file, old, new in (
            ("parts of other blocks of keys", "split_work.cuh",
             "own_blocks(args) + block)", "own_blocks(args))"),
            ("parts in another order", "split_work.cuh", "% n_splits;", "% (n_splits - 1);"),
            ("another head's keys", "split_work.cuh", "(this->head) / n_splits",
             "(this->head) / (n_splits - 1)"),
        )
    ),
    Fault("dQ rounded that is not wanted", _OWN, "args.d_q == nullptr || ", "",
          test_ordered_work.test_nobody_is_the_last_of_a_gradient_that_is_not_wanted,
          {"kernel": "many_steps", "causal": True}),
    # the Ampere family
    Fault("a row too many copied", f"{SM80}/block_copy.cuh", "row + step * kRowsPerStep < n_rows",
          "row + step * kRowsPerStep <= n_rows", test_block_copy.test_rows_become_a_tile,
          {"kernel_config": _SM80, "n_rows": 37}),
    Fault("another KV head", f"{SM80}/position.cuh",
          "head / static_cast<unsigned>(args.n_heads_q / args.n_heads_kv)",
          "head % static_cast<unsigned>(args.n_heads_kv)",
          test_block_position.test_every_block_of_queries_once,
          {"block": 64, "seqlen": 256, "any_length": False, "causal": False, "heads": 6,
           "kv_heads": 2, "with_lse": False}),
    Fault("a key too many seen", f"{SM80}/bounds.cuh", "score = n * 8 + i < keys ?",
          "score = n * 8 + i <= keys ?", test_bounds.test_masks,
          {"kernel_config": _SM80, "last": True}),
    Fault("a block of keys too few", f"{SM80}/bounds.cuh", "q_row + q_rows - 1",
          "q_row + q_rows - 2", test_bounds.test_bounds_of_any_length,
          {"kernel_config": _SM80}),
    Fault("a scale left out", f"{SM80}/softmax.cuh",
          "kFolded ? row_max[m][half] * scale : row_max[m][half]", "row_max[m][half]",
          test_online_softmax.test_every_scale, {"folded": True, "scale": 0.01}),
    Fault("sums that are not rescaled", f"{SM80}/softmax.cuh",
          "row_sum[m][half] = ptx::mul_rn(row_sum[m][half], alpha[half]);", "",
          test_online_softmax.test_the_softmax_of_all_blocks,
          {"m_tiles": 1, "s_tiles": 4, "growth": "fast", "folded": True, "peeled": True}),
    Fault("a row too many stored", f"{SM80}/epilogue.cuh",
          "if (kBounded && row >= n_rows) continue;", "if (kBounded && row > n_rows) continue;",
          test_sm80_epilogue.test_rows_are_scaled_rounded_and_stored,
          {"kernel_config": _SM80, "n_rows": 7}),
    # the Hopper family
    Fault("a key too many seen by wgmma's rows", f"{SM90}/mask.cuh", ">= end[i / 2 % 2]",
          "> end[i / 2 % 2]", test_mask.test_keys_from_a_row_s_number_on_are_hidden,
          {"n_keys": 48}),
    Fault("the phase of the pass before", f"{SM90}/ring.cuh", "parity ^= 1;", "parity = 0;",
          test_ring.test_what_goes_in_comes_out_in_any_order_of_threads, {"buffers": 2}),
    Fault("sums that keep an old scale", f"{SM90}/softmax.cuh", " sum[half] *= alpha[half];", "",
          test_softmax.test_the_softmax_of_all_blocks,
          {"policy": "lazy", "growth": "fast", "below": 0.0, "hidden": "", "n_keys": 48}),
    Fault("short tiles first", f"{SM90}/schedule.cuh",
          "row_block = blocks_per_head - 1 - step;", "row_block = step;",
          test_tile_schedule.test_every_tile_once,
          {"kernel_config": _SM90, "problem": _TILES, "causal": True, "grid": 2}),
    Fault("V over K", f"{SM90}/storage.cuh", "kVOffset = kKOffset + kBuffers * kConfig",
          "kVOffset = kKOffset + kConfig", test_shared_storage.test_every_byte_has_one_use,
          {"kernel_config": _SM90}),
    Fault("scores added to what was there", f"{SM90}/matmuls.cuh", "step != 0);", "1);",
          test_sm90_matmuls.test_scores, {"kernel_config": test_sm90_matmuls.CONFIGS[0]}),
    Fault("the swizzle of longer rows", f"{SM90}/forward/epilogue.cuh",
          ": row / 2 % 4;", ": row % 4;",
          test_sm90_epilogue.test_rows_that_exist_are_stored,
          {"kernel_config": test_sm90_epilogue.CONFIGS[2], "n_queries": 64, "row": 0,
           "with_lse": False}),
    Fault("a log-sum-exp too many", f"{SM90}/forward/epilogue.cuh", "if (query < args.seqlen_q)",
          "if (query <= args.seqlen_q)", test_sm90_epilogue.test_rows_that_exist_are_stored,
          {"kernel_config": test_sm90_epilogue.CONFIGS[0], "n_queries": 100, "row": 64,
           "with_lse": True}),
]  # fmt: skip
