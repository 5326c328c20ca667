"""Runs Hopper attention kernels (csrc/include/flash/sm90) in the emulator, on problems of every
kind: one block takes several tiles, lengths end within blocks, masks, rows without keys."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from flash_helpers.emulator import (
    EmulatedKernel,
    LaunchOptions,
    LaunchReport,
    memory_range_of,
    pack_tensor_map,
)
from flash_helpers.paths import csrc_dir

from ..support import aligned
from .gemm import hopper_ptx

ENTRY = "attention"
EPS = 2.0**-11


@dataclass(frozen=True)
class HopperConfig:
    """The fields of HopperForwardKernelConfig (csrc/include/flash/core), fp16."""

    d_head: int = 128
    block_n: int = 128
    n_mma_groups: int = 2
    n_buffers: int = 2
    n_q_buffers: int = 1
    max_policy: int = 1  # 0: exact, 1: lazy, 2: optimistic
    overlap: bool = True
    tile_overlap: bool = False
    ping_pong: bool = True
    o_in_q: bool = False

    def ptx(self) -> str:
        values = ", ".join(
            f".{f.name} = static_cast<decltype(Config::{f.name})>({int(getattr(self, f.name))})"
            for f in fields(self)
        )
        source = f"""#include "flash/sm90/forward.cuh"
using namespace flash;
using Config = HopperForwardKernelConfig;
constexpr Config kConfig{{.dtype = DType::kFP16, {values}}};
extern "C" __global__ void __launch_bounds__(kConfig.n_threads(), 1)
    {ENTRY}(const __grid_constant__ HopperForwardArgs args) {{
  sm90::forward<kConfig>(args);
}}
"""
        return hopper_ptx("attention.cu", source, str(csrc_dir() / "include"))

    @property
    def smem_bytes(self) -> int:
        q = self.n_mma_groups * 64 * self.d_head * 2
        kv = self.block_n * self.d_head * 2
        barriers = 2 * self.n_q_buffers * self.n_mma_groups + 4 * self.n_buffers
        tiles = (self.n_q_buffers + (not self.o_in_q)) * q + 2 * self.n_buffers * kv
        return tiles + 8 * barriers + 4 * self.n_q_buffers


@dataclass
class HopperProblem:
    """Inputs [batch, sequence, head, column], and the outputs in fp64."""

    seqlen_q: int
    seqlen_k: int
    heads: int = 1
    kv_heads: int = 1
    causal: bool = False
    counts_tiles: bool = False  # blocks draw their tiles from a counter
    grid: int = 1
    d_head: int = 128
    seed: int = 0
    q: Any = field(init=False, repr=False)
    k: Any = field(init=False, repr=False)
    v: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        for name in "qkv":
            rows, heads = (
                (self.seqlen_q, self.heads) if name == "q" else (self.seqlen_k, self.kv_heads)
            )
            array = aligned((1, rows, heads, self.d_head), np.float16)
            array[:] = rng.standard_normal(array.shape)
            setattr(self, name, array)
        # Blocks are walked from last to first: the maxima of the rows grow on the way.
        self.k *= np.linspace(3.0, 0.3, self.seqlen_k)[:, None, None].astype(np.float16)

    def expected(self) -> tuple[Any, Any]:
        """Output and log-sum-exp [head, row]; 0 and -inf where a row sees no key."""
        q, k, v = (array[0].astype(np.float64).swapaxes(0, 1) for array in (self.q, self.k, self.v))
        share = self.heads // self.kv_heads
        k, v = np.repeat(k, share, axis=0), np.repeat(v, share, axis=0)
        scores = q @ k.swapaxes(1, 2) * self.d_head**-0.5
        if self.causal:
            row, key = np.arange(self.seqlen_q)[:, None], np.arange(self.seqlen_k)
            hidden = key > row + self.seqlen_k - self.seqlen_q
            scores = np.where(hidden, -np.inf, scores)
        maxima = scores.max(axis=2, keepdims=True)
        maxima = np.where(np.isfinite(maxima), maxima, 0.0)
        weights = np.exp(scores - maxima)
        sums = weights.sum(axis=2, keepdims=True)
        with np.errstate(divide="ignore"):
            lse = (np.log(sums) + maxima)[..., 0]
        return weights / np.where(sums > 0, sums, 1.0) @ v, lse

    def run(
        self, config: HopperConfig, kernel: EmulatedKernel, options: LaunchOptions | None = None
    ) -> tuple[Any, Any, LaunchReport]:
        """Output bits, log-sum-exp and the report. Outputs start as NaN."""
        o, lse = aligned(self.q.shape, np.float16), aligned((self.heads, self.seqlen_q), np.float32)
        o[:], lse[:] = np.nan, np.nan
        counter = aligned(16, np.int32)
        maps = b"".join(
            _map(array, config, rows)
            for array, rows in ((self.q, 64), (self.k, config.block_n), (self.v, config.block_n),
                                (o, 16))
        )  # fmt: skip
        arguments = maps + struct.pack(
            "<QQ6ifi",
            *(lse.ctypes.data, counter.ctypes.data if self.counts_tiles else 0),
            *(1, self.seqlen_q, self.seqlen_k, self.heads, self.kv_heads, int(self.causal)),
            *(self.d_head**-0.5, self.heads),
        )
        inputs = [memory_range_of(getattr(self, name), name, writable=False) for name in "qkv"]
        outputs = {"o": o, "lse": lse, "counter": counter}
        report = kernel.launch(
            (self.grid, 1, 1),
            ((config.n_mma_groups + 1) * 128, 1, 1),
            config.smem_bytes,
            [arguments.ljust(kernel.parameter_sizes[0], b"\0")],
            [*inputs, *(memory_range_of(array, name) for name, array in outputs.items())],
            options=options,
        )
        if counter.any():
            raise AssertionError(f"the tile counter is left at {counter[0]}")
        return o, lse, report

    def error(self, o: Any, lse: Any) -> float:
        """The worst row's error, in units of eps, or of 1e-4 in the log-sum-exp; NaN is infinite."""
        expected, expected_lse = self.expected()
        actual = o[0].astype(np.float64).swapaxes(0, 1)
        sizes = np.linalg.norm(expected, axis=2)
        with np.errstate(invalid="ignore"):
            rows = np.linalg.norm(actual - expected, axis=2) / np.where(sizes > 0, sizes, EPS)
            lse_error = np.where(lse == expected_lse, 0.0, np.abs(lse - expected_lse)) / 1e-4
        worst = max(np.where(np.isnan(e), np.inf, e).max() for e in (rows / EPS, lse_error))
        return float(worst)


def _map(array: Any, config: HopperConfig, rows: int) -> bytes:
    """(column in chunk, sequence, chunk, head, batch), as HopperForwardArgs has it."""
    chunk = 64 if config.d_head % 64 == 0 else 32
    batch, sequence, heads, columns = array.shape
    s_batch, s_row, s_head, _ = array.strides
    chunks = columns // chunk
    return pack_tensor_map(
        array.ctypes.data,
        2,
        (chunk, sequence, chunks, heads, batch),
        (s_row, 2 * chunk, s_head, s_batch),
        (chunk, rows, chunks, 1, 1),
        swizzle=2 * chunk,
    )


def problems(config: HopperConfig, seed: int) -> list[HopperProblem]:
    """Each reaches code that others do not."""
    rows, keys, d = 64 * config.n_mma_groups, config.block_n, config.d_head
    return [
        HopperProblem(2 * rows + 40, 4 * keys, d_head=d, seed=seed),
        HopperProblem(3 * rows - 70, 3 * keys + 41, causal=True, d_head=d, seed=seed),
        # Tiles without any key, blocks that draw their tiles from a counter.
        HopperProblem(4 * rows, keys, 2, 1, True, True, grid=2, d_head=d, seed=seed),
        # The groups of a tile see different numbers of blocks.
        HopperProblem(2 * rows, 2 * rows + 2 * keys - 64, causal=True, d_head=d, seed=seed),
    ]
