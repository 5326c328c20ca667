"""Bugs in what the Hopper family's MLA kernels have of their own, and the tests that must fail with
each (as tests/bugs.py)."""

from __future__ import annotations

from tests.mutation import Bug

_MLA, _TEST = "csrc/include/flash/sm90_serve_mla", "tests/serving/test_hopper_mla.py"
_SHARES = "csrc/include/flash/sm80_serve"
_MLA_PY = "py/flash_helpers/kernels/sm90_serve_mla/arguments.py"
_SPLITS_DENSE = f"{_TEST}::test_splits_of_tiles_that_share_keys"
_ONE, _ROWS, _LAYOUTS, _NOBODY, _GROWS, _SPLITS, _BLOCKS, _ALL = (
    f"{_TEST}::test_{name}"
    for name in (
        "lengths_around_blocks[300]", "heads_and_queries[20-4]", "layouts_have_the_same_bits",
        "what_nobody_sees_has_no_effect", "a_maximum_that_grows_with_every_block",
        "a_sequence_has_the_same_bits_in_every_batch[3]", "any_number_of_thread_blocks[5]",
        "any_number_of_thread_blocks[20]",
    )
)  # fmt: skip
_ABREAST = tuple(f"{_TEST}::test_tiles_abreast[{n}]" for n in (5, 20))
BUGS = (
    Bug("Hopper MLA: no tiles abreast", f"{_MLA}/consumer.cuh",
        "abreast_(args.abreast)", "abreast_(1)",
        (f"{_TEST}::test_tiles_abreast_read_the_same_keys",)),
    Bug("Hopper MLA: keys of no tiles abreast", f"{_MLA}/producer.cuh",
        "abreast(args_.abreast)", "abreast(1)",
        (f"{_TEST}::test_tiles_abreast_read_the_same_keys",)),
    Bug("Hopper MLA: all that are abreast have the first tile", f"{_SHARES}/shares.cuh",
        "head * units.tiles + abreast.first_tile()", "head * units.tiles", _ABREAST),
    Bug("Hopper MLA: tiles abreast leave their parts in one place", f"{_SHARES}/abreast.cuh",
        "static_cast<int>(its_share * n + tile)", "static_cast<int>(its_share * n)", _ABREAST),
    Bug("Hopper MLA: thread blocks abreast have shares of their own", f"{_SHARES}/shares.cuh",
        "min(abreast.share() * each", "min(blockIdx.x * each", _ABREAST),
    Bug("Hopper MLA: a thread block's part is counted by its number", f"{_SHARES}/parts.cuh",
        "static_cast<int>(abreast.share()) - first_share",
        "static_cast<int>(blockIdx.x) - first_share", _ABREAST),
    Bug("Hopper MLA: parts of groups lie as if each had a share", f"{_SHARES}/parts.cuh",
        "2 * abreast.block(first_share + round.first + i * round.step)",
        "2 * (first_share + round.first + i * round.step)", _ABREAST[1:]),
    Bug("Hopper MLA: more tiles abreast than thread blocks", f"{_MLA_PY}",
        "min(_MOST_ABREAST, n_blocks)", "_MOST_ABREAST", (f"{_TEST}::test_tiles_abreast[1]",)),
    Bug("Hopper MLA: splits abreast", f"{_MLA_PY}",
        'differ or not fields["arrivals"]', "differ", (_SPLITS_DENSE,)),
    Bug("Hopper MLA: what rotates is read from the values", f"{_MLA}/producer.cuh",
        "rotated ? &args_.k : &args_.v", "&args_.v", (_ONE,)),
    Bug("Hopper MLA: every part from the first row of a page", f"{_MLA}/producer.cuh",
        "      row += args_.part_rows;\n", "", (_LAYOUTS,)),
    Bug("Hopper MLA: entries of parts that nobody sees", f"{_MLA}/producer.cuh",
        "key >= piece.keys.end", "false", (_NOBODY,)),
    Bug("Hopper MLA: a stage that is still read", f"{_MLA}/producer.cuh",
        "    sm90::wait_phase(at_.empty(ring_.buffer, kHalf), ring_.parity ^ 1);\n", "",
        (f"{_TEST}::test_the_schedule_does_not_matter",)),
    Bug("Hopper MLA: a chunk that is not waited for", f"{_MLA}/producer.cuh",
        "(kEnd - kFirst) *", "(kEnd - kFirst - 1) *", (_ONE,)),
    Bug("Hopper MLA: queries without a swizzle", f"{_MLA}/queries.cuh",
        "(vector % 8 ^ row % 8) * 16", "vector % 8 * 16", (_ONE,)),
    Bug("Hopper MLA: queries that do not exist", f"{_MLA}/queries.cuh",
        "    if (row >= tile.n_rows) return;\n", "", (_ROWS,)),
    Bug("Hopper MLA: scores of the second half alone", f"{_MLA}/matmuls.cuh",
        "step != 0", "step != kFirst", (_ONE,)),
    Bug("Hopper MLA: both groups have the first columns", f"{_MLA}/matmuls.cuh",
        "at.group() * kConfig.group_chunks()", "0", (_ONE,)),
    Bug("Hopper MLA: weights are told before the last were read", f"{_MLA}/consumer.cuh",
        "      if (i > 0) ptx::bar_sync(kWeightsRead, kThreads);\n", "", (_ONE,)),
    Bug("Hopper MLA: weights are read before they are told", f"{_MLA}/consumer.cuh",
        "      ptx::bar_sync(kWeightsTold, kThreads);\n", "", (_ONE,)),
    Bug("Hopper MLA: the left columns are not brought to a new maximum", f"{_MLA}/consumer.cuh",
        "      rescale(o, softmax.factor[0], softmax.factor[1]);\n", "", (_GROWS,)),
    Bug("Hopper MLA: the right columns are not brought to a new maximum", f"{_MLA}/consumer.cuh",
        "      rescale(o, upper, lower);\n", "", (_GROWS,)),
    Bug("Hopper MLA: values that nobody sees", f"{_MLA}/consumer.cuh",
        "        clear<kConfig>(at_, stage, keys, key);\n", "", (_NOBODY,)),
    Bug("Hopper MLA: scores while values are cleared", f"{_MLA}/consumer.cuh",
        "      if (needs_clearing<kConfig>(keys, key)) ptx::bar_sync(kCleared, kThreads);\n", "",
        (_NOBODY,)),
    Bug("Hopper MLA: cleared values are not fenced", f"{_MLA}/clearing.cuh",
        "  ptx::fence_proxy_async_shared();\n", "", (_NOBODY,)),
    Bug("Hopper MLA: queries are not fenced", f"{_MLA}/consumer.cuh",
        "      ptx::fence_proxy_async_shared();\n", "", (_ONE,)),
    Bug("Hopper MLA: scores before the queries are there", f"{_MLA}/consumer.cuh",
        "      ptx::bar_sync(kConsumers, kThreads);  // Q is visible; the ends of the piece before"
        " were read\n", "", (_ONE,)),
    Bug("Hopper MLA: rows' ends before they are told", f"{_MLA}/consumer.cuh",
        "      ptx::bar_sync(kConsumers, kThreads);  // the rows' ends are visible\n", "",
        (_ONE,)),
    Bug("Hopper MLA: the left half has not landed", f"{_MLA}/consumer.cuh",
        "      sm90::wait_phase(at_.full(stage, kLeft), ring_.parity);\n"
        "      Mm::template issue", "      Mm::template issue", (_ONE,)),
    Bug("Hopper MLA: the right half has not landed", f"{_MLA}/consumer.cuh",
        "      sm90::wait_phase(at_.full(stage, kRight), ring_.parity);\n"
        "      Mm::template issue", "      Mm::template issue", (_ONE,)),
    Bug("Hopper MLA: both groups give back the left half", f"{_MLA}/consumer.cuh",
        "add(stage, weights, o, kRight)", "add(stage, weights, o, kLeft)",
        (f"{_TEST}::test_the_schedule_does_not_matter",)),
    Bug("Hopper MLA: sums that are not brought to a new maximum", f"{_MLA}/softmax.cuh",
        "ptx::fma_rn(sum_[half], factor[half], sum)", "sum_[half] + sum", (_GROWS,)),
    Bug("Hopper MLA: rows that see nothing", f"{_MLA}/epilogue.cuh",
        "scale == 0.0f ? float4{} : scaled", "scaled",
        (f"{_TEST}::test_a_row_without_a_key_beside_nan",)),
    Bug("Hopper MLA: both rows of a pair are the upper", f"{_MLA}/epilogue.cuh",
        "(is_lower ? 8 : 0);", "0;", (_ONE,)),
    Bug("Hopper MLA: a sink of every part", f"{_MLA}/epilogue.cuh",
        "exists && piece.is_whole && args", "exists && args", (_BLOCKS,)),
    Bug("Hopper MLA: splits that are the whole tile",
        "csrc/include/flash/sm80_serve_mla/parked.cuh",
        "    if (is_split(args)) piece.is_whole = args.n_splits == 1;\n", "",
        (_SPLITS,)),
    Bug("Hopper MLA: parts are counted before all threads have left theirs",
        f"{_MLA}/consumer.cuh", "[] { ptx::bar_sync(kConsumers, kThreads); }", "[] {}", (_ALL,)),
    Bug("Hopper MLA: packed pages are counted by sequence", f"{_MLA}/producer.cuh",
        "key / args_.page_keys]", "key / kConfig.B_c]", (_LAYOUTS,)),
)  # fmt: skip
