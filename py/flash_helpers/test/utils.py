"""Inputs, references and statistics for tests and benchmarks, under the seeds' names."""

from __future__ import annotations

from dataclasses import dataclass

from ..base.lazy import torch
from ..check.peers import find_peer
from ..check.sizes import BATCH_SIZE_FOR_SEQ_LEN as BATCH_SIZE_FOR_SEQ_LEN
from ..check.sizes import BENCHMARK_N_HEADS as BENCHMARK_N_HEADS


@dataclass(frozen=True)
class QKVConfig:
    n_heads: int
    d_head: int
    batch_size: int
    seq_len: int
    dtype: torch.dtype
    device: torch.device | str


def generate_qkv(cfg: QKVConfig) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Standard normal q, k and v, from PyTorch's global random state."""
    shape = (cfg.batch_size, cfg.seq_len, cfg.n_heads, cfg.d_head)
    q, k, v = (torch.randn(shape, dtype=cfg.dtype, device=cfg.device) for _ in range(3))
    return q, k, v


def generate_qkvo(cfg: QKVConfig) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """q, k, v and an output filled with NaN, so that a row that is not written shows."""
    q, k, v = generate_qkv(cfg)
    return q, k, v, torch.full_like(q, float("nan"))


def reference_forward_kernel_v2(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor | None = None
) -> torch.Tensor:
    """flash-attn 2 if installed, else PyTorch's FlashAttention-2; on a CPU the fp32 reference."""
    return _run("v2", q, k, v, o)


def reference_forward_kernel_v3(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor | None = None
) -> torch.Tensor:
    """flash-attn 3 or 4 if installed, else cuDNN's; on a CPU the fp32 reference."""
    return _run("v3", q, k, v, o)


def reference_forward_kernel_v2_timed(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor | None = None
) -> tuple[torch.Tensor, float]:
    """The output and the milliseconds on the device (a copy to `o` is not counted)."""
    if not q.is_cuda:
        raise ValueError(f"timing needs CUDA tensors, got {q.device}: emulated times mean nothing")
    peer = find_peer("v2", q.device.type)
    with torch.cuda.device(q.device):
        start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        stop = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        start.record()
        output = peer(q, k, v)
        stop.record()
        stop.synchronize()
    return _into(o, output), start.elapsed_time(stop)


def _run(
    version: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor | None
) -> torch.Tensor:
    return _into(o, find_peer(version, q.device.type)(q, k, v))


def _into(o: torch.Tensor | None, output: torch.Tensor) -> torch.Tensor:
    return output if o is None else o.copy_(output)


def error_stats(
    expected: torch.Tensor, actual: torch.Tensor, atol: float = 1e-5, rtol: float = 1e-3
) -> tuple[int, float, float]:
    """(elements that differ, per cent that differ, largest absolute difference). For printing;
    `tolerance.compare` decides what is right."""
    close = torch.isclose(actual, expected, atol=atol, rtol=rtol)
    mismatched = int((~close).sum())
    largest = float((expected - actual).abs().max())
    return mismatched, 100.0 * mismatched / expected.numel(), largest


def get_cuda_device_info(device_idx: int = 0) -> dict[str, str | int]:
    if not torch.cuda.is_available():
        raise RuntimeError("no CUDA device is available")
    properties = torch.cuda.get_device_properties(device_idx)
    return {
        "name": properties.name,
        "compute_capability": f"{properties.major}.{properties.minor}",
        "total_memory": f"{properties.total_memory / 1024**3:.2f} GB",
        "multi_processor_count": properties.multi_processor_count,
    }


def is_a100() -> bool:
    return "A100" in str(get_cuda_device_info()["name"])
