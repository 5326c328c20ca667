"""Runs the PTX of an attention kernel on one head and compares it with fp64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from flash_helpers.emulator import EmulatedKernel, LaunchOptions, LaunchReport, memory_range_of
from flash_helpers.forward_args import pack_forward_args
from flash_helpers.kernel_configs import DType, FlashForwardKernelConfig

from .support import aligned

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

    config: FlashForwardKernelConfig
    q: Any
    k: Any
    v: Any
    expected: Any
    expected_lse: Any

    @classmethod
    def make(
        cls, config: FlashForwardKernelConfig, seq_len: int, seed: int, seq_len_k: int | None = None
    ) -> Problem:
        rng = np.random.default_rng(seed)
        rows = (seq_len, seq_len_k or seq_len, seq_len_k or seq_len)
        q, k, v = (aligned((n, config.d_head), np.uint16) for n in rows)
        for array in (q, k, v):
            array[:] = to_bits(rng.standard_normal(array.shape), config.dtype)
        # Blocks are walked from last to first: make the row maxima grow on the way, so that every
        # rescaling happens.
        growth = np.linspace(3.0, 0.3, len(k))[:, None]
        k[:] = to_bits(from_bits(k, config.dtype) * growth, config.dtype)
        scores = from_bits(q, config.dtype) @ from_bits(k, config.dtype).T * config.d_head**-0.5
        maxima = scores.max(axis=1, keepdims=True)
        weights = np.exp(scores - maxima)
        sums = weights.sum(axis=1, keepdims=True)
        expected = weights / sums @ from_bits(v, config.dtype)
        return cls(config, q, k, v, expected, (np.log(sums) + maxima)[:, 0])

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
        )
        inputs = [memory_range_of(getattr(self, name), name, writable=False) for name in "qkv"]
        outputs = [memory_range_of(o, "o"), memory_range_of(lse, "lse")]
        report = kernel.launch(
            (seq_len // config.B_r, 1, 1),
            (config.n_threads(), 1, 1),
            config.smem_bytes(),
            [arguments],
            [*inputs, *outputs],
            options=options,
        )
        return o, lse, report

    def row_error(self, o: Any) -> float:
        """max over rows of ||o - ref|| / ||ref||, in units of eps; NaN counts as infinite."""
        difference = np.linalg.norm(from_bits(o, self.config.dtype) - self.expected, axis=1)
        relative = difference / np.linalg.norm(self.expected, axis=1)
        worst = np.where(np.isnan(relative), np.inf, relative).max()
        return float(worst / EPS[self.config.dtype])
