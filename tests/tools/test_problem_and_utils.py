"""Problems' tensors are repeatable; the seeds' helpers keep their names and meaning."""

from __future__ import annotations

import pytest
import torch

from flash_helpers.check.reference import attention_reference
from flash_helpers.check.tolerance import bitwise_equal, compare
from flash_helpers.kernel_configs import DType, calc_matmul_flop, calc_self_attn_flop
from flash_helpers.kernels.problem import AttentionProblem, fresh_seed
from flash_helpers.test.utils import (
    BATCH_SIZE_FOR_SEQ_LEN,
    BENCHMARK_N_HEADS,
    QKVConfig,
    error_stats,
    generate_qkv,
    generate_qkvo,
    get_cuda_device_info,
    is_a100,
    reference_forward_kernel_v2,
    reference_forward_kernel_v2_timed,
    reference_forward_kernel_v3,
)

WORK = AttentionProblem.self_attention(DType.BF16, 2, 64, 4, 32, n_kv_heads=2)
CONFIG = QKVConfig(4, 32, 2, 64, torch.float16, "cpu")


def test_batch_sizes() -> None:
    table = {512: 16, 1024: 16, 2048: 16, 4096: 16, 8192: 8, 16384: 4}
    others = {1: 16, 64: 16, 3072: 16, 6144: 10, 32768: 2, 65536: 1, 10**6: 1}
    assert {n: BATCH_SIZE_FOR_SEQ_LEN[n] for n in table | others} == table | others
    assert dict(BATCH_SIZE_FOR_SEQ_LEN) == table and BENCHMARK_N_HEADS == 16
    with pytest.raises(KeyError, match="at least 1"):
        BATCH_SIZE_FOR_SEQ_LEN[0]


def test_the_tensors_of_a_problem_are_repeatable() -> None:
    first, second = WORK.tensors(5, "cpu"), WORK.tensors(5, "cpu")
    assert all(bitwise_equal(a, b) for a, b in zip(first, second, strict=True))
    other = WORK.tensors(6, "cpu")
    assert not any(torch.equal(a, b) for a, b in zip(first, other, strict=True))
    assert [tuple(x.shape) for x in first] == [(2, 64, 4, 32), (2, 64, 2, 32), (2, 64, 2, 32)]
    assert {x.dtype for x in first} == {torch.bfloat16}
    assert not torch.equal(first[1], first[2])


def test_the_cost_of_a_problem() -> None:
    assert WORK.matmul_flop() == calc_matmul_flop(2, 4, 64, 64, 32) == 4 * 2 * 4 * 64 * 64 * 32
    assert WORK.attn_flop() == calc_self_attn_flop(2, 4, 64, 32)
    inputs = WORK.tensors(5, "cpu")
    assert WORK.n_bytes() == sum(x.nbytes for x in inputs) + 2 * 2 * 64 * 4 * 32
    assert str(WORK) == "BF16, batch 2, heads 4 (2 KV), seq 64, d 32"


def test_a_problem_of_two_lengths_and_two_head_dimensions() -> None:
    problem = AttentionProblem(DType.FP16, 2, 3, 10, 4, 2, 32, 16)
    q, k, v = problem.tensors(5, "cpu")
    assert [tuple(x.shape) for x in (q, k, v)] == [(2, 3, 4, 32), (2, 10, 2, 32), (2, 10, 2, 16)]
    assert str(problem) == "FP16, batch 2, heads 4 (2 KV), seq 3 x 10, d 32 and 16"
    assert problem.n_bytes() == sum(x.nbytes for x in (q, k, v)) + 2 * 2 * 3 * 4 * 16
    assert problem.matmul_flop() == 2 * 2 * 4 * 3 * 10 * (32 + 16)
    assert problem.attn_flop() == problem.matmul_flop() + 6 * 2 * 4 * 3 * 10


@pytest.mark.parametrize(("n_queries", "n_keys"), [(1, 4096), (100, 300), (300, 100), (64, 64)])
def test_causal_flop_follows_the_scores_that_are_seen(n_queries: int, n_keys: int) -> None:
    """By the area under the diagonal: exact but for half a score in each row."""
    problem = AttentionProblem(DType.FP16, 1, n_queries, n_keys, 1, 1, 64, causal=True)
    seen = sum(max(0, n_keys - n_queries + row + 1) for row in range(n_queries))
    assert abs(problem.matmul_flop() / (4 * 64) - seen) == min(n_queries, n_keys) / 2


def test_without_a_key_nothing_is_computed() -> None:
    problem = AttentionProblem(DType.FP16, 1, 8, 0, 1, 1, 64, causal=True)
    assert problem.matmul_flop() == problem.attn_flop() == 0


def test_problems_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match="seqlen_q must be at least 1, got 0"):
        AttentionProblem.self_attention(DType.FP16, 1, 0, 1, 64)
    with pytest.raises(ValueError, match="n_heads 3 is not a multiple of n_kv_heads 2"):
        AttentionProblem(DType.FP16, 1, 1, 1, 3, 2, 64)


def test_fresh_seeds_differ() -> None:
    assert len({fresh_seed() for _ in range(10)}) == 10


def test_generated_tensors() -> None:
    q, k, v = generate_qkv(CONFIG)
    assert {tuple(x.shape) for x in (q, k, v)} == {(2, 64, 4, 32)}
    assert {x.dtype for x in (q, k, v)} == {torch.float16}
    *_, o = generate_qkvo(CONFIG)
    assert o.isnan().all()


def test_references_on_the_cpu() -> None:
    q, k, v, o = generate_qkvo(CONFIG)
    expected = attention_reference(q, k, v)[0]
    for function in (reference_forward_kernel_v2, reference_forward_kernel_v3):
        assert compare(function(q, k, v), expected).passed
        assert function(q, k, v, o) is o and compare(o, expected).passed
    with pytest.raises(ValueError, match="timing needs CUDA tensors"):
        reference_forward_kernel_v2_timed(q, k, v)


def test_error_stats() -> None:
    expected = torch.tensor([1.0, 2.0, 3.0, 4.0])
    assert error_stats(expected, expected) == (0, 0.0, 0.0)
    mismatched, percent, largest = error_stats(expected, torch.tensor([1.0, 2.5, 3.0, 4.0]))
    assert (mismatched, percent, largest) == (1, 25.0, 0.5)
    assert error_stats(expected, torch.full((4,), float("nan")))[0] == 4


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_device_queries_without_a_device() -> None:
    for function in (get_cuda_device_info, is_a100):
        with pytest.raises(RuntimeError, match="no CUDA device"):
            function()


@pytest.mark.gpu
def test_references_and_device_queries_on_a_gpu() -> None:
    assert {"name", "compute_capability"} <= set(get_cuda_device_info())
    config = QKVConfig(4, 64, 2, 512, torch.float16, "cuda")
    q, k, v = generate_qkv(config)
    expected = attention_reference(q, k, v)[0]
    o, ms = reference_forward_kernel_v2_timed(q, k, v)
    assert compare(o, expected).passed and ms > 0
    assert compare(reference_forward_kernel_v2(q, k, v), expected).passed
