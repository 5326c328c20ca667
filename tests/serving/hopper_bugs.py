"""Bugs in pages and wide heads of the Hopper family that serves (as bugs.py)."""

from __future__ import annotations

from tests.mutation import Bug

_HOPPER, _HOPPER_TEST = "csrc/include/flash/sm90_serve", "tests/serving/test_hopper.py"
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
        "(kNarrower ? args.d_v : kConfig.d_head)", "kConfig.d_head",
        (f"{_HOPPER_TEST}::test_narrower_values",)),
    Bug("columns that values have not got", "py/flash_helpers/kernels/sm90_serve/arguments.py",
        'd = int(fields["d_v"]) if name in "vo" else config.d_head', "d = config.d_head",
        (f"{_HOPPER_TEST}::test_narrower_values", "tests/runtime/test_hopper_serve_args.py")),
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
        "block * kConfig.block_n % args.page_keys", "0", (_SIZES,)),
    Bug("a page goes on behind its end", _PAGES,
        "    if (row >= args.page_keys) row = 0;\n", "", (_SIZES,)),
    Bug("every part is the first", _PAGES, "entries, part);", "entries, 0);", (_SIZES,)),
    Bug("the first columns twice", _PAGES, "row, chunk, kv_head", "row, 0, kv_head", (_SIZES,)),
    Bug("parts lie where others do", _PAGES,
        "chunk * kConfig.block_n + part", "chunk * kConfig.block_n + 0 * part", (_SIZES,)),
    Bug("a tile begins with the entries of the last", _PAGES,
        "if constexpr (kConfig.paged) ahead = first;", "", (_MANY,)),
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

HOPPER_BUGS = (*WIDE_HEADS, *HOPPER_PAGES)
