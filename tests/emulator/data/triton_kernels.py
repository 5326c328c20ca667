# mypy: ignore-errors
"""Three kernels in Triton's language (not typed Python, hence no mypy): see make_triton_ptx.py."""

import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    total = tl.load(x + offsets, mask=inside) + tl.load(y + offsets, mask=inside)
    tl.store(out + offsets, total, mask=inside)


@triton.jit
def softmax(x, out, columns, BLOCK: tl.constexpr):
    """One row a program."""
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    inside = offsets < columns
    values = tl.load(x + row * columns + offsets, mask=inside, other=-float("inf"))
    weights = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * columns + offsets, weights / tl.sum(weights, axis=0), mask=inside)


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """C = A B, row-major, M and N multiples of 16 but not of the block."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    ks = tl.arange(0, BK)
    a_at = a + rows[:, None] * K + ks[None, :]
    b_at = b + ks[:, None] * N + columns[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        left = tl.load(a_at, mask=(rows[:, None] < M) & (ks[None, :] < K - k), other=0.0)
        right = tl.load(b_at, mask=(columns[None, :] < N) & (ks[:, None] < K - k), other=0.0)
        total = tl.dot(left, right, total)
        a_at += BK
        b_at += BK * N
    at = c + rows[:, None] * N + columns[None, :]
    tl.store(at, total, mask=(rows[:, None] < M) & (columns[None, :] < N))
