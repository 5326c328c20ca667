"""Bugs in the Hopper family's serving kernels."""

from __future__ import annotations

from tests.mutation import Bug

_HOPPER, _HOPPER_TEST = "csrc/include/flash/sm90_serve", "tests/serving/test_hopper.py"
HOPPER_SERVING = (
    Bug("values behind a sequence's end", f"{_HOPPER}/clearing.cuh",
        "      clear_rows(smem.v(buffer), to, kConfig.block_n);\n", "",
        (f"{_HOPPER_TEST}::test_sequences_of_one_group",)),
    Bug("values before the first key", f"{_HOPPER}/clearing.cuh",
        "      clear_rows(smem.v(buffer), 0, from);\n", "",
        (f"{_HOPPER_TEST}::test_caches_and_used_lengths",)),
    Bug("values that end before the tile", f"{_HOPPER}/clearing.cuh",
        "max(min(to, kConfig.block_n), first);", "min(to, kConfig.block_n);",
        (f"{_HOPPER_TEST}::test_keys_that_end_far_from_their_beginning",)),
    Bug("zeros that the matmuls may not see", f"{_HOPPER}/clearing.cuh",
        "      ptx::fence_proxy_async_shared();  // for the matmuls\n", "",
        (f"{_HOPPER_TEST}::test_sequences_of_one_group",)),
    Bug("zeros of other lanes", f"{_HOPPER}/clearing.cuh",
        "      __syncwarp();                     // ... the zeros of all lanes\n", "",
        (f"{_HOPPER_TEST}::test_sequences_of_one_group",)),
    Bug("queries behind a sequence's end", f"{_HOPPER}/consumer.cuh",
        "if (n_rows >= kGroupRows) return;", "if (n_rows > 0) return;",
        (f"{_HOPPER_TEST}::test_a_sequence_has_the_same_bits_in_every_batch",)),
    Bug("rows of the next sequence are stored", f"{_HOPPER}/epilogue.cuh",
        "if (rows.count >= Base::kRows) {", "if (true) {",
        (f"{_HOPPER_TEST}::test_rows_that_are_not_used_stay",)),
    Bug("a row too few is stored", f"{_HOPPER}/epilogue.cuh",
        "i < rows.count * kRowPieces", "i < (rows.count - 1) * kRowPieces",
        (f"{_HOPPER_TEST}::test_sequences_of_one_group",)),
    Bug("rows are stored as they are swizzled", f"{_HOPPER}/epilogue.cuh",
        "(piece % kChunkPieces ^ Base::swizzle(row))", "(piece % kChunkPieces)",
        (f"{_HOPPER_TEST}::test_sequences_of_one_group",)),
    Bug("a window's first block without its mask", f"{_HOPPER}/consumer.cuh",
        """        n_optimistic = block == first ? block & -kPause : block;
        --block;
      }
      // No whole block will be left: those at the beginning are not computed without a mask.
      if (!event || n_optimistic <= work.whole_begin) n""",
        """        n_optimistic = max(block == first ? block & -kPause : block, work.whole_begin);
        --block;
      }
      if (block < work.whole_begin) n""",
        (f"{_HOPPER_TEST}::test_large_scores_before_the_first_key_of_a_window",)),
    Bug("no tile for what is left of a sequence", f"{_HOPPER}/schedule.cuh",
        "return start / Rows::tile_queries(args) + batch;",
        "return start / Rows::tile_queries(args);",
        (f"{_HOPPER_TEST}::test_many_empty_sequences",)),
    Bug("nobody sets the tile counter back", f"{_HOPPER}/schedule.cuh",
        "    if (answer == n_tiles - 1) atomicExch(args.tile_counter, 0);\n", "",
        (f"{_HOPPER_TEST}::test_tiles_that_blocks_ask_for",)),
    Bug("padding of another sequence", f"{_HOPPER}/schedule.cuh",
        "call.leftpad_k[tile.batch]", "call.leftpad_k[0]",
        (f"{_HOPPER_TEST}::test_caches_and_used_lengths",)),
)  # fmt: skip

_ALONE = f"{_HOPPER_TEST}::test_a_sequence_has_the_same_bits_in_every_batch"
_WIDE = f"{_HOPPER_TEST}::test_windows_of_wide_heads"
WIDE_HEADS = (
    Bug("the next Q comes over outputs that are still read", f"{_HOPPER}/consumer.cuh",
        "      End::Base::wait_staging_free(lane);\n      release_q(work.q_buffer);\n",
        "      release_q(work.q_buffer);\n", (_WIDE,)),
    Bug("the next Q comes over outputs without a fence", f"{_HOPPER}/consumer.cuh",
        "      ptx::fence_proxy_async_shared();  // staged rows, where the next Q comes\n", "",
        (_WIDE,)),
    Bug("blocks before a group's are not passed over", f"{_HOPPER}/consumer.cuh",
        "return work.begin - tile_word(work.tile, kBegin, lane);", "return 0;", (_WIDE,)),
    Bug("values' columns are as many as keys'", f"{_HOPPER}/epilogue.cuh",
        "kForward.value_bytes() / 16", "kForward.row_bytes() / 16",
        (f"{_HOPPER_TEST}::test_narrower_values",)),
    Bug("columns that values have not got", "py/flash_helpers/kernels/sm90_serve/arguments.py",
        'd = config.d_v() if name in "vo" else config.d_head', "d = config.d_head",
        (f"{_HOPPER_TEST}::test_narrower_values", "tests/runtime/test_hopper_serve_args.py")),
    Bug("a block of narrow values has the bytes of keys", f"{_HOPPER}/producer.cuh",
        "kForward.v_bytes()", "kForward.k_bytes()", (f"{_HOPPER_TEST}::test_narrower_values",)),
    Bug("narrow values are copied in the chunks of keys", f"{_HOPPER}/producer.cuh",
        "copy<kForward.n_value_chunks()>", "copy<kForward.n_chunks()>",
        (f"{_HOPPER_TEST}::test_narrower_values",)),
    Bug("narrow outputs of a group in another one's queries", "csrc/include/flash/sm90/storage.cuh",
        "kConfig.o_in_q ? kGroupQBytes : kGroupOBytes", "kGroupOBytes",
        (f"{_HOPPER_TEST}::test_narrower_values",)),
    Bug("a tile's keys are those of the first one's head", f"{_HOPPER}/pages.cuh",
        "    kv_head = kv_head_of_tile;\n", "", (f"{_HOPPER_TEST}::test_lengths",)),
    Bug("queries of others in wide heads", f"{_HOPPER}/consumer.cuh",
        "max(n_rows, 0), kGroupRows,", "kGroupRows, kGroupRows,", (_ALONE,)),
)  # fmt: skip

_PAGES, _PAGES_TEST = f"{_HOPPER}/pages.cuh", "tests/serving/test_hopper_pages.py"
_SIZES, _MANY = (f"{_PAGES_TEST}::test_{name}" for name in ("sizes_of_pages", "lengths"))
HOPPER_PAGES = (
    Bug("entries behind a length", _PAGES,
        "key >= tile.rule.seqlen_k)", "key >= args.call.seqlen_k)", (_SIZES,)),
    Bug("entries before the first key", _PAGES,
        "key + args.part_rows <= tile.first_key || ", "", (_SIZES,)),
    Bug("the page of the first key is left out", _PAGES,
        "key + args.part_rows <= tile.first_key", "key < tile.first_key", (_SIZES,)),
    Bug("pages of the first sequence", _PAGES,
        "tile.batch * args.pages_stride", "0 * args.pages_stride", (_SIZES,)),
    Bug("a page of more keys begins anew", _PAGES,
        "block * kBlockN % args.page_keys", "0", (_SIZES,)),
    Bug("a page goes on behind its end", _PAGES,
        "    if (row >= args.page_keys) row = 0;\n", "", (_SIZES,)),
    Bug("every part is the first", _PAGES, "entries, begin + i);", "entries, 0);",
        (_SIZES,)),
    Bug("the first columns twice", _PAGES, "row, chunk, pages.kv_head", "row, 0, pages.kv_head",
        (_SIZES,)),
    Bug("parts lie where others do", _PAGES,
        "block_n + (begin + i) * args.part_rows", "block_n + begin * args.part_rows", (_SIZES,)),
    Bug("a tile begins with the entries of the last", _PAGES,
        "    if constexpr (kConfig.paged) ahead = first;\n", "", (_MANY,)),
    Bug("the next tile's entries too early", _PAGES,
        "if constexpr (kConfig.paged) first = entry", "if constexpr (kConfig.paged) ahead = entry",
        (_MANY,)),
    Bug("values of the next keys' pages", f"{_HOPPER}/producer.cuh",
        "load_v(tile, block, pages.behind);", "load_v(tile, block, pages.here);", (_SIZES,)),
    Bug("the last values are of pages before", f"{_HOPPER}/producer.cuh",
        "load_v(tile, tile.begin, pages.here);", "load_v(tile, tile.begin, pages.behind);",
        (_SIZES,)),
    Bug("lengths are places", f"{_HOPPER}/schedule.cuh",
        "      if constexpr (kConfig.paged) tile.k_start = 0;  // they say lengths alone\n", "",
        (_MANY,)),
    Bug("pages that no box fits", "py/flash_helpers/kernels/sm90_serve/config.py",
        "if sizes.page_size % LEAST_PART_ROWS:", "if sizes.page_size < 0:",
        (f"{_HOPPER_TEST}::test_calls_for_the_other_family",)),
)  # fmt: skip

_PACKING, _PACKING_TEST = f"{_HOPPER}/packing.cuh", "tests/serving/test_hopper_packing.py"
_HEADS, _SHORT, _LONG, _CHUNK, _UNUSED, _SAME = (
    f"{_PACKING_TEST}::test_{case}"
    for case in (
        "heads_of_a_group[3-True]", "new_tokens[8-7]", "new_tokens[8-64]",
        "a_chunk_and_decodes[queries0]", "rows_that_are_not_used_stay[4]",
        "a_sequence_has_the_same_bits_in_every_batch[3]",
    )
)  # fmt: skip
_PACKED_END = f"{_HOPPER}/packed_epilogue.cuh"
HOPPER_PACKING = (
    Bug("a group's rows go on behind its whole queries", _PACKING,
        "return min(n_queries, args.group_queries) * args.group_heads;",
        "return n_queries * args.group_heads;", (_HEADS,)),
    Bug("a row is a query", _PACKING, "return row * args.group_inverse >> 16;", "return row;",
        (_SHORT,)),
    Bug("a division that is a unit too low", "py/flash_helpers/kernels/sm90_serve/arguments.py",
        "2**16 // heads + 1", "2**16 // heads",
        (_HEADS, "tests/runtime/test_hopper_serve_args.py")),
    Bug("tiles of as many queries as rows", _PACKING,
        "if constexpr (kConfig.pack_gqa) return args.group_queries;\n", "", (_LONG,)),
    Bug("a tile of both ends twice", f"{_HOPPER}/schedule.cuh",
        "args.tiles_per_head - 1 - step / 2 : step / 2;",
        "args.tiles_per_head - 1 - step / 2 : step;",
        (_CHUNK,)),
    Bug("a short sequence's second group begins too far before it", f"{_HOPPER}/producer.cuh",
        "tile.row = -next_group * Packing<kConfig>::group_queries(args);",
        "tile.row = -next_group * kGroupRows;", (_SHORT,)),
    Bug("queries of the first columns in every chunk", f"{_HOPPER}/producer.cuh",
        "&args.q, full, chunk * kForward.chunk_columns(), 0,", "&args.q, full, 0, 0,", (_CHUNK,)),
    Bug("bytes of rows that no box has", f"{_HOPPER}/producer.cuh",
        "const int n_rows = args.group_queries * args.group_heads;",
        "const int n_rows = kGroupRows;",
        (_HEADS,)),
    Bug("a mask of rows", f"{_HOPPER}/mask.cuh",
        "work.row + Packing<kConfig>::query(args, warp * 16 + lane / 4 + 8 * half)",
        "work.row + warp * 16 + lane / 4 + 8 * half", (_SHORT,)),
    Bug("the first head's sink for all", _PACKED_END,
        "args.call.sinks[Place(args, rows, row).head]", "args.call.sinks[rows.head]", (_HEADS,)),
    Bug("packed rows of the next sequence are stored", _PACKED_END,
        "if (rows.count >= Base::kRows && heads_fill_rows(args)) {",
        "if (heads_fill_rows(args)) {",
        (_UNUSED,)),
    Bug("boxes of heads that do not fill 16 rows", _PACKED_END,
        "if (rows.count >= Base::kRows && heads_fill_rows(args)) {",
        "if (rows.count >= Base::kRows) {", (_HEADS,)),
    Bug("a box of outputs belongs to a warp before", _PACKED_END,
        "rows.first + Packing<kConfig>::query(args, rows.of_group);", "rows.first;", (_SHORT,)),
    Bug("outputs of the first KV head", _PACKED_END,
        "head = rows.head * args.group_heads + of_group", "head = of_group", (_HEADS,)),
    Bug("log-sum-exps of rows that are not there", _PACKED_END,
        "      if (row >= rows.count) continue;\n      const Place place",
        "      const Place place",
        (_HEADS,)),
    Bug("a group's first key is its last query's", f"{_HOPPER}/consumer.cuh",
        "rule, work.row, min(work.row + Packed::group_queries(args) - 1, last));",
        "rule, work.row, min(work.row + kGroupRows - 1, last));", (_SAME,)),
    Bug("many KV heads are like few", "csrc/bindings/serving_query.cpp",
        "heads_of_all >= telling.many_heads ? -1 :", "",
        ("tests/build/test_serving_calls.py::test_a_call_of_other_sizes_is_launched_again",)),
    Bug("packed heads for prompts", "py/flash_helpers/kernels/sm90_serve/config.py",
        "PACKED_MIXED = range(9, 128)", "PACKED_MIXED = range(9, 1280)",
        ("tests/config/test_hopper_serve_configs.py",)),
)  # fmt: skip

BUGS = (*HOPPER_SERVING, *WIDE_HEADS, *HOPPER_PAGES, *HOPPER_PACKING)
