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
_FUSED = "csrc/include/flash/sm80_bwd_fused/{}.cuh"
_FUSED_TESTS = (
    f"{_GRADIENTS}::test_gradients_of_shared_heads_are_summed[sm80_bwd_fused-64-4-2]",
    f"{_GRADIENTS}::test_a_whole_and_an_odd_problem"
    "[(BF16, 128, 128, 64, 8): ampere_fused_backward]",
)
_SPLIT = "csrc/include/flash/sm90_bwd_fused/split_{}.cuh"
_SHARED = tuple(
    f"{_GRADIENTS}::test_heads_that_share_few_keys[130-6-6-"
    f"(FP16, 128, 128, 64, 2, 2, {add_by}): fused_backward]"
    for add_by in ("COPIES", "IN_ORDER")
)
_PAIR = "csrc/include/flash/sm90_bwd_cluster/{}.cuh"
_SECTIONS_H = "csrc/include/flash/sm90_bwd_cluster/sections.h"
_BY_PAIRS = (
    f"{_GRADIENTS}::test_a_whole_and_an_odd_problem"
    "[(FP16, 192, 64, 64, 2, 2, 64, ANY_ORDER): cluster_backward]",
)
_IN_ORDER = (
    f"{_GRADIENTS}::test_more_pairs_than_begin_at_once"
    "[(FP16, 192, 64, 64, 2, 2, 0, IN_ORDER): cluster_backward]",
)
_SECTIONS = tuple(f"tests/backward/test_sections.py::test_whoever_does_it[{i}]" for i in range(2))
BUGS = (
    Bug("the other half of P and dS is the own one", _FUSED.format("backward"),
        "MatrixOrder::kRowsFirst, (1 - half()) * 2 * L::kColumnTiles);",
        "MatrixOrder::kRowsFirst, half() * 2 * L::kColumnTiles);", _FUSED_TESTS),
    Bug("queries of the own half for the other one's weights", _FUSED.format("backward"),
        "theirs, columns(other + (1 - half()) * kHalfBytes)",
        "theirs, columns(other + half() * kHalfBytes)", _FUSED_TESTS),
    Bug("both warps of a pair have the first queries", _FUSED.format("backward"),
        "queries = half() * L::kHalfColumns * L::Tile::kRowBytes;",
        "queries = 0 * L::kHalfColumns * L::Tile::kRowBytes;", _FUSED_TESTS[1:]),
    Bug("RowStats of the first half", _FUSED.format("backward"),
        "smem + half() * L::kHalfColumns * int{sizeof(RowStats)}", "smem", _FUSED_TESTS[1:]),
    Bug("dQ of the block that is computed", _FUSED.format("backward"),
        "add_sums(before(place), step - 1);\n      done",
        "add_sums(place, step - 1);\n      done", _FUSED_TESTS),
    Bug("the head before begins with its last block", _FUSED.format("backward"),
        "return {work.end - 1, place.head - 1};", "return {work.begin, place.head - 1};",
        _FUSED_TESTS[1:]),
    Bug("dS where the one before is read", _FUSED.format("backward"),
        "step % Config::kDsBlocks * kConfig", "0 * kConfig", _FUSED_TESTS),
    Bug("sums of all heads in one", _FUSED.format("backward"),
        "work.head * work.n_heads + place.head;", "work.head * work.n_heads;", _FUSED_TESTS),
    Bug("sums rounded without the scale", _FUSED.format("query_sums"),
        "sums[i * L::kThreads] * args.softmax_scale", "sums[i * L::kThreads]", _FUSED_TESTS),
    Bug("rounded rows that do not exist", _FUSED.format("query_sums"),
        "    if (first_row + r >= args.seqlen_q) break;\n", "", _FUSED_TESTS),
    Bug("sums that nobody clears", _FUSED.format("backward"),
        "    clear_query_sums<kConfig.d_head, kThreads>(args);\n", "", _FUSED_TESTS),
    Bug("dS without its swizzle", _PAIR.format("ds_writer"),
        "lane / 16 ^ key % 8", "lane / 16", _BY_PAIRS),
    Bug("a pair's halves of a chunk exchanged", _PAIR.format("query_sums"),
        "kChunk + rank * kHalf", "kChunk + (1 - rank) * kHalf", _BY_PAIRS),
    Bug("own keys for the other thread block's dS", _PAIR.format("query_sums"),
        "multiply<true>(smem.other_ds(ring.buffer), smem.other_keys(),",
        "multiply<true>(smem.other_ds(ring.buffer), smem.own1(0) + chunk,", _BY_PAIRS),
    Bug("both of a pair bring what passes by", "csrc/include/flash/sm90_bwd/producer.cuh",
        "} else if (ptx::cluster_rank() == kBringer) {", "} else {", _BY_PAIRS),
    Bug("given back to this thread block alone", "csrc/include/flash/sm90_bwd/pair.cuh",
        "ptx::peer_address(barrier, ptx::cluster_rank() ^ 1)",
        "ptx::peer_address(barrier, ptx::cluster_rank())", _BY_PAIRS),
    Bug("each warp holds the first one's rows", "csrc/include/flash/sm90_bwd/own_rows.cuh",
        "(warp * 16 + row) * 128", "row * 128", _BY_PAIRS),
    Bug("weights packed while dV is multiplied by the last ones", _PAIR.format("weights_consumer"),
        "weigh<kHides>();\n    Mm::template wait<0>(sums);\n", "weigh<kHides>();\n", _BY_PAIRS),
    Bug("keys beside the pair", _PAIR.format("backward"),
        "(rank == 0 ? kConfig.keys_rows : -kConfig.keys_rows)", "kConfig.keys_rows", _BY_PAIRS),
    Bug("keys of a tile in the place of those before", _PAIR.format("backward"),
        "    sm90::wait_phase(smem.own1_empty(), parity ^ 1);\n", "", _SECTIONS[:1]),
    Bug("who draws does not wait for the second thread block", _PAIR.format("backward"),
        "kReaders + (ptx::cluster_rank() == 0 ? 1 : 0)", "kReaders", _SECTIONS[:1]),
    Bug("the second thread block has the first one's keys", _PAIR.format("layout"),
        "    Base::first_row += static_cast<int>(rank) * kConfig.keys_rows;\n", "", _BY_PAIRS),
    Bug("a share handed over before it is added", _PAIR.format("sums_turns"),
        "    ptx::tma_store_wait<0>();\n    sm90", "    sm90", _IN_ORDER),
    Bug("a share added before its turn", _PAIR.format("sums_turns"),
        "      turn.await();\n", "", _IN_ORDER),
    Bug("a warp's last rows left out", _PAIR.format("spare_warps"),
        "begin + least + (worker < more ? 1 : 0)", "begin + least", _SECTIONS[:1]),
    Bug("the other thread block's elements", _PAIR.format("spare_warps"),
        "static_cast<int>(i % kParts / Part::kWarps)",
        "1 - static_cast<int>(i % kParts / Part::kWarps)", _SECTIONS[:1]),
    Bug("rows beside each other", _PAIR.format("spare_warps"),
        "to += 8 * call.d_q_stride_seq * kBytes;", "to += call.d_q_stride_seq * kBytes;",
        _SECTIONS[:1]),
    Bug("the log-sum-exp of the head before", _PAIR.format("spare_warps"),
        "lse_row = head * call.seqlen_q + row;", "lse_row = head * call.seqlen_q - 1 + row;",
        _SECTIONS[:1]),
    Bug("a section that is not whole rounds another", _SECTIONS_H,
        "return n_heads / heads; }", "return count; }", _SECTIONS[1:]),
    Bug("a head that nobody rounds", _SECTIONS_H,
        "first_head(n_whole() - lead) : 0;", "first_head(n_whole() - lead) + 1 : 0;",
        _SECTIONS[:1]),
    Bug("heads of a thread block left out", _SPLIT.format("heads"),
        "part < first + n; ++part", "part + 1 < first + n; ++part", _SHARED),
    Bug("other heads' keys", _SPLIT.format("work"),
        "static_cast<unsigned>(this->head) / n_splits", "static_cast<unsigned>(this->head)",
        _SHARED),
    Bug("all heads in each thread block", _SPLIT.format("work"),
        "this->n_heads /= args.head_splits;", "", _SHARED),
    Bug("tiles that nobody draws", _SPLIT.format("work"),
        "shared_heads(args) * static_cast<unsigned>(args.batch);",
        "static_cast<unsigned>(args.n_heads_kv * args.batch);", _SHARED[:1]),
    Bug("tiles of the first share of the heads alone", _SPLIT.format("work"),
        " + place % splits;", ";", _SHARED[:1]),
    Bug("tiles that are drawn from any number on", "csrc/include/flash/sm90_bwd_fused/backward.cuh",
        "*tile_counter<kConfig>(args.call) = 0;", ";", _SHARED[:1]),
    Bug("counters that begin with anything", "csrc/include/flash/sm90_bwd_fused/backward.cuh",
        "args.call.head_splits > 1", "false", _SHARED),
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
