"""Runs the PTX of an attention kernel on one head and compares it with fp64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from flash_helpers.emulator import EmulatedKernel, LaunchOptions, LaunchReport, memory_range_of
from flash_helpers.kernel_configs import DType
from flash_helpers.kernels.contract import KernelConfig
from flash_helpers.kernels.forward_args import pack_forward_args

from .support import aligned
from .work import Work

EPS = {DType.FP16: 2.0**-11, DType.BF16: 2.0**-8}


def to_bits(values: Any, dtype: DType) -> Any:
    """f32 values as the 16-bit format, rounded to nearest even."""
    if dtype is DType.FP16:
        return values.astype(np.float16).view(np.uint16)
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> np.uint64(16) & np.uint64(1))) >> np.uint64(16)).astype(
        np.uint16
    )


def from_bits(bits: Any, dtype: DType) -> Any:
    if dtype is DType.FP16:
        return bits.view(np.float16).astype(np.float64)
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


@dataclass
class Problem:
    """Inputs of one head, the expected output, and memory for the actual one."""

    config: KernelConfig
    q: Any
    k: Any
    v: Any
    expected: Any
    expected_lse: Any
    causal: bool = False

    @classmethod
    def make(
        cls,
        config: KernelConfig,
        seq_len: int,
        seed: int,
        seq_len_k: int | None = None,
        causal: bool = False,
    ) -> Problem:
        rng = np.random.default_rng(seed)
        n_keys = seq_len if seq_len_k is None else seq_len_k
        rows = (seq_len, n_keys, n_keys)
        q, k, v = (aligned((n, config.d_head), np.uint16) for n in rows)
        for array in (q, k, v):
            array[:] = to_bits(rng.standard_normal(array.shape), config.dtype)
        # Blocks are walked from last to first: make the row maxima grow on the way, so that every
        # rescaling happens.
        growth = np.linspace(3.0, 0.3, len(k))[:, None]
        k[:] = to_bits(from_bits(k, config.dtype) * growth, config.dtype)
        scores = from_bits(q, config.dtype) @ from_bits(k, config.dtype).T * config.d_head**-0.5
        if causal:  # the last query sees the last key
            hidden = np.arange(len(k)) > np.arange(len(q))[:, None] + len(k) - len(q)
            scores = np.where(hidden, -np.inf, scores)
        maxima = scores.max(axis=1, keepdims=True, initial=-np.inf)
        weights = np.exp(scores - np.where(np.isinf(maxima), 0, maxima))
        sums = weights.sum(axis=1, keepdims=True)
        expected = weights / np.where(sums == 0, 1, sums) @ from_bits(v, config.dtype)
        with np.errstate(divide="ignore"):
            expected_lse = (np.log(sums) + maxima)[:, 0]
        return cls(config, q, k, v, expected, expected_lse, causal)

    def run(
        self, kernel: EmulatedKernel, options: LaunchOptions | None = None
    ) -> tuple[Any, Any, LaunchReport]:
        """Output bits, log-sum-exp and the report. Outputs start as NaN."""
        config = self.config
        seq_len = len(self.q)
        o, lse = aligned(self.q.shape, np.uint16), aligned(seq_len, np.float32)
        o[:], lse[:] = 0xFFFF, np.nan
        q_strides, kv_strides = (
            (array.size, config.d_head, config.d_head) for array in (self.q, self.k)
        )
        arguments = pack_forward_args(
            q=self.q.ctypes.data,
            k=self.k.ctypes.data,
            v=self.v.ctypes.data,
            o=o.ctypes.data,
            lse=lse.ctypes.data,
            q_strides=q_strides,
            k_strides=kv_strides,
            v_strides=kv_strides,
            o_strides=q_strides,
            batch=1,
            seqlen_q=seq_len,
            seqlen_k=len(self.k),
            n_heads_q=1,
            n_heads_kv=1,
            softmax_scale=config.d_head**-0.5,
            causal=self.causal,
        )
        inputs = [memory_range_of(getattr(self, name), name, writable=False) for name in "qkv"]
        outputs = [memory_range_of(o, "o"), memory_range_of(lse, "lse")]
        report = kernel.launch(
            (-(-seq_len // config.blocks()[0]), 1, 1),
            (config.n_threads(), 1, 1),
            config.smem_bytes(),
            [arguments],
            [*inputs, *outputs],
            options=options,
        )
        return o, lse, report

    def needed(self) -> Work:
        """All blocks of keys that some row of a thread block sees, multiplied twice. Copies and
        stores of 16 bytes; those of rows behind the end are zero-filled, or left out where they go
        through registers. Each row stores its log-sum-exp."""
        n_queries, n_keys, config = len(self.q), len(self.k), self.config
        block_rows, block_keys = config.blocks()
        blocks = rows = existing_rows = 0  # of keys; of all matrices
        for first in range(0, n_queries, block_rows):
            last = min(first + block_rows, n_queries)
            keys = max(0, last + n_keys - n_queries) if self.causal else n_keys
            needed = -(-keys // block_keys)
            blocks += needed
            if needed != 0:
                rows += block_rows + 2 * needed * block_keys
                existing_rows += last - first + 2 * min(needed * block_keys, n_keys)
        pieces = config.d_head * 2 // 16
        copies = getattr(config, "async_copy", True)
        return Work(
            blocks * 2 * block_rows * block_keys * config.d_head // (16 * 8 * 16),
            async_copies=rows * pieces if copies else 0,
            global_loads=0 if copies else existing_rows * pieces,
            global_stores=n_queries * (pieces + 1),
        )

    def lse_error(self, lse: Any) -> float:
        """Largest error of a log-sum-exp; NaN, and an infinity that is not expected, count as
        infinite."""
        with np.errstate(invalid="ignore"):
            error = np.where(lse == self.expected_lse, 0, np.abs(lse - self.expected_lse))
        return float(np.where(np.isnan(error), np.inf, error).max())

    def row_error(self, o: Any) -> float:
        """max over rows of ||o - ref|| / ||ref||, in units of eps; NaN counts as infinite, and so
        does anything but 0 in a row that must be 0."""
        difference = np.linalg.norm(from_bits(o, self.config.dtype) - self.expected, axis=1)
        norm = np.linalg.norm(self.expected, axis=1)
        with np.errstate(divide="ignore"):
            relative = np.where(difference == 0, 0, difference / np.where(norm == 0, 1e-30, norm))
        worst = np.where(np.isnan(relative), np.inf, relative).max()
        return float(worst / EPS[self.config.dtype])
