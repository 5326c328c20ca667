"""Every field of the configuration switches what its name says, read from nvcc's PTX.

ptxas reorders within a basic block, so in SASS `load` and `buffer` are hints to its scheduler; the
presence of instructions, their counts and their place relative to barriers survive.
"""

from __future__ import annotations

import itertools
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from flash_helpers.base.paths import csrc_dir
from flash_helpers.kernel_configs import FlashForwardKernelConfig, get_sm80_kernel_configs
from tests.forward.ptx_shape import ptx_shape

STEPS = get_sm80_kernel_configs("prog")
BASE, SWIZZLED, EAGER, LOAD_2, BUFFER, OPT_SOFTMAX, Q_WHOLE = STEPS

# 64 x 64 blocks, 4 warps, d_head 128: a warp's S is 8 n-tiles and 8 k-tiles; a 16x16 tile is one
# ldmatrix, so Q is 8 of them, K and V 32 each.
Q_LOADS, K_LOADS, MMAS = 8, 32, 64


def test_the_steps_are_what_they_are_called() -> None:
    changed = [
        {f for f in BASE.__dataclass_fields__ if getattr(a, f) != getattr(b, f)}
        for a, b in itertools.pairwise(STEPS)
    ]
    assert changed == [
        {"swizzled"},
        {"eager_load_blocks"},
        {"Q_mma_load_K_tiles", "K_mma_load_K_tiles", "V_mma_load_K_tiles"},
        {"mma_double_buffer_loads"},
        {"optimized_softmax"},
        {"Q_mma_load_K_tiles", "mma_double_buffer_loads"},
    ]


def test_async_copy_replaces_loads_and_stores() -> None:
    through_registers = ptx_shape(replace(BASE, async_copy=False))
    asynchronous = ptx_shape(BASE)
    copies = asynchronous.count("copy")
    assert copies == 8 + 8 + 8 + 8  # Q and K before the loop, V and K in it
    assert asynchronous.count("load") == 0
    assert asynchronous.count("wait") > 0
    assert through_registers.count("copy") == through_registers.count("wait") == 0
    assert through_registers.count("load") == copies
    assert through_registers.count("store") == asynchronous.count("store") + copies


def test_swizzling_is_an_xor_of_addresses() -> None:
    assert ptx_shape(BASE).count("xor") == 0
    assert ptx_shape(SWIZZLED).count("xor") > 8
    assert ptx_shape(SWIZZLED).count("ldmatrix") == ptx_shape(BASE).count("ldmatrix")


def test_eager_loads_are_issued_between_the_matmuls() -> None:
    """The next K right behind S = Q K^T, before the softmax."""
    eager, lazy = ptx_shape(EAGER), ptx_shape(SWIZZLED)
    behind_scores = eager.between("mma", "exp")
    assert behind_scores.count("copy") == 8 and behind_scores.count("barrier") == 1
    assert lazy.between("mma", "exp").count("copy") == 0
    assert eager.count("barrier") == lazy.count("barrier") == 1 + 2


def test_whole_operands_are_loaded_before_the_matmul() -> None:
    assert ptx_shape(EAGER).scores_phase() == [("ldmatrix", Q_LOADS + K_LOADS), ("mma", MMAS)]


@pytest.mark.parametrize("tiles", [1, 2, 4])
def test_k_tiles_are_loaded_as_many_at_a_time_as_it_says(tiles: int) -> None:
    config = replace(LOAD_2, Q_mma_load_K_tiles=tiles, K_mma_load_K_tiles=tiles)
    per_tile = 1 + K_LOADS // 8
    step = [("ldmatrix", tiles * per_tile), ("mma", tiles * MMAS // 8)]
    assert ptx_shape(config).scores_phase() == step * (8 // tiles)


def test_double_buffering_loads_the_next_k_tile_before_the_mma_of_this_one() -> None:
    per_tile = 1 + K_LOADS // 8
    steady = [("mma", 8), ("ldmatrix", per_tile)] * 6
    expected = [("ldmatrix", 2 * per_tile), *steady, ("mma", 16)]
    assert ptx_shape(BUFFER).scores_phase() == expected
    assert ptx_shape(BUFFER).count("ldmatrix") == ptx_shape(LOAD_2).count("ldmatrix")


def test_v_has_a_schedule_of_its_own() -> None:
    whole = ptx_shape(replace(LOAD_2, V_mma_load_K_tiles=0)).runs("ldmatrix", "mma")
    by_two = ptx_shape(LOAD_2).runs("ldmatrix", "mma")
    assert whole[-2:] == [("ldmatrix", 32), ("mma", 64)]
    assert by_two[-4:] == [("ldmatrix", 16), ("mma", 32)] * 2


def test_q_held_whole_is_loaded_once_outside_the_loop() -> None:
    assert ptx_shape(Q_WHOLE).count("ldmatrix") == Q_LOADS + 2 * (K_LOADS + K_LOADS)
    assert ptx_shape(OPT_SOFTMAX).count("ldmatrix") == 2 * (Q_LOADS + K_LOADS + K_LOADS)


def test_the_optimised_softmax_peels_the_first_block_and_folds_the_scale() -> None:
    plain, folded = ptx_shape(BUFFER), ptx_shape(OPT_SOFTMAX)
    scores = 32  # of a thread
    assert folded.count("mma") == 2 * plain.count("mma")
    row_sums = 2  # of a thread, multiplied when the maximum grows
    assert plain.count("mul_rn") == 2 * scores + row_sums  # the scale, and log2(e)
    assert folded.count("mul_rn") == row_sums
    assert folded.count("fma") >= 2 * scores
    assert plain.count("fma") < scores
    # two more exponentials per thread rescale the output, but not in the first block
    assert plain.count("exp") == scores + 2
    assert folded.count("exp") == 2 * scores + 2


@pytest.mark.parametrize("d_head", [64, 128])
@pytest.mark.parametrize(("B_r", "B_c", "n_warps"), [(64, 32, 4), (128, 64, 4), (128, 128, 8)])
def test_block_sizes_set_the_amount_of_work(d_head: int, B_r: int, B_c: int, n_warps: int) -> None:
    config = replace(SWIZZLED, d_head=d_head, B_r=B_r, B_c=B_c, n_warps=n_warps)
    rows = B_r // n_warps
    assert ptx_shape(config).count("mma") == 2 * (rows // 16) * (B_c // 8) * (d_head // 16)


BANKS_PROGRAM = """
#include <cstdio>
#include <set>
#include "flash/tile/shared_tile.h"
// 16-byte bank groups that the eight rows of one ldmatrix matrix touch: 8 is free of conflicts.
template <int kDHead, bool kSwizzled> int conflicts() {
  using Tile = flash::SharedTile<kDHead, kSwizzled>;
  int extra = 0;
  for (int first_row = 0; first_row < 64; first_row += 8)
    for (int chunk = 0; chunk < Tile::kChunksPerRow; ++chunk) {
      int rows_in_group[8] = {};
      for (int row = 0; row < 8; ++row)
        ++rows_in_group[Tile::offset(first_row + row, chunk) / 16 % 8];
      int wavefronts = 0;
      for (int n : rows_in_group) wavefronts = n > wavefronts ? n : wavefronts;
      extra += wavefronts - 1;
    }
  return extra;
}
template <int kDHead, bool kSwizzled> bool bijective() {
  using Tile = flash::SharedTile<kDHead, kSwizzled>;
  std::set<int> seen;
  for (int row = 0; row < 128; ++row)
    for (int chunk = 0; chunk < Tile::kChunksPerRow; ++chunk) seen.insert(Tile::offset(row, chunk));
  return seen.size() == 128u * Tile::kChunksPerRow && *seen.rbegin() + 16 == 128 * kDHead * 2;
}
template <int kDHead, bool kSwizzled> bool steps() {  // xor_bytes and add_bytes walk along a row
  using Tile = flash::SharedTile<kDHead, kSwizzled>;
  for (int row = 0; row < 16; ++row)
    for (int chunk = 0; chunk < 2; ++chunk)
      for (int delta = 0; delta + chunk < Tile::kChunksPerRow; delta += 2)
        if (((Tile::offset(row, chunk) ^ Tile::xor_bytes(delta)) + Tile::add_bytes(delta)) !=
            Tile::offset(row, chunk + delta)) return false;
  return true;
}
int main() {
  std::printf("%d %d %d %d\\n", conflicts<64, false>(), conflicts<64, true>(),
              conflicts<128, false>(), conflicts<128, true>());
  std::printf("%d\\n", bijective<64, false>() && bijective<64, true>() &&
              bijective<128, false>() && bijective<128, true>() && steps<64, false>() &&
              steps<64, true>() && steps<128, false>() && steps<128, true>());
}
"""


def test_bank_conflicts_are_gone_with_the_swizzle(tmp_path: Path) -> None:
    """ncu counts the same on the H200 (docs/results): 0 per load with the swizzle, 7 without."""
    source, program = tmp_path / "banks.cpp", tmp_path / "banks"
    source.write_text(BANKS_PROGRAM)
    include = f"-I{csrc_dir() / 'include'}"
    subprocess.run(["g++", "-std=c++20", include, str(source), "-o", str(program)], check=True)
    output = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
    counts, valid = output.splitlines()
    matrices = {64: 8 * 8, 128: 8 * 16}
    assert counts == f"{7 * matrices[64]} 0 {7 * matrices[128]} 0"
    assert valid == "1"


def kernel_differs(a: FlashForwardKernelConfig, b: FlashForwardKernelConfig) -> bool:
    return ptx_shape(a).kinds != ptx_shape(b).kinds


def test_every_step_is_another_program() -> None:
    for a, b in itertools.pairwise(STEPS):
        assert kernel_differs(a, b), f"{a.short_form()} and {b.short_form()}"
