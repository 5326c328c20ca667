"""What the curve is measured with: a kernel made for it, and our attention kernels."""

from __future__ import annotations

import ctypes
import statistics
from collections.abc import Callable

from flash_helpers.base.lazy import torch
from flash_helpers.base.timing import CudaTimer
from flash_helpers.kernels.backward_config import BackwardKernelConfig
from flash_helpers.kernels.contract import KernelConfig

from .curve import Subject
from .kernels import residency
from .model import calibration_blocks
from .programs import build

_LIBRARY = ("wave_block.cu",)
_PROBE_STEPS = 20_000


def wave_block(blocks_per_sm: int, threads: int, block_us: float) -> Subject:
    """Blocks of `threads` that compute for `block_us` when one is on each SM. Three warps for each
    scheduler (384 threads) keep it busy for three quarters: two such blocks share it.

    Raises BuildError without a compiler, RuntimeError for what the GPU does not do.
    """
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    sms: int = properties.multi_processor_count
    path = build("wave_block", _LIBRARY, (properties.major, properties.minor), shared=True)
    library = ctypes.CDLL(str(path))
    fits = ctypes.c_int(0)
    claim: int = library.wave_block_prepare(
        torch.cuda.current_device(), threads, blocks_per_sm, ctypes.byref(fits)
    )
    if claim < 0:
        raise RuntimeError(f"CUDA refuses a claim of shared memory (error {-claim})")
    if fits.value != blocks_per_sm:
        raise RuntimeError(
            f"{fits.value} blocks of {threads} threads with {claim} bytes fit on an SM, not "
            f"{blocks_per_sm}: choose other threads or blocks per SM"
        )
    results = torch.empty(1 << 16, device="cuda", dtype=torch.float32)

    def launch(blocks: int, steps: int) -> None:
        status = library.wave_block_launch(
            ctypes.c_void_p(results.data_ptr()), blocks, threads, claim, steps,
            ctypes.c_void_p(torch.cuda.current_stream().cuda_stream),
        )  # fmt: skip
        if status:
            raise RuntimeError(f"launching {blocks} blocks: CUDA error {status}")

    steps = _steps_for(lambda n: launch(sms, n), block_us)
    name = f"wave_block, {threads} threads, {blocks_per_sm} block(s) an SM"
    return Subject(name, sms, blocks_per_sm, lambda n: lambda: launch(n, steps))


def _steps_for(launch: Callable[[int], None], block_us: float) -> int:
    """So that a block takes that long; between two launches, so that their overhead drops out."""
    timer = CudaTimer(torch.device("cuda"), cold_l2=False)
    launch(_PROBE_STEPS)
    short, long = (
        statistics.median(timer(lambda n=n: launch(n)).ms for _ in range(5))  # type: ignore[misc]
        for n in (_PROBE_STEPS, 2 * _PROBE_STEPS)
    )
    return max(1, round(_PROBE_STEPS * block_us / 1e3 / (long - short)))


def attention(config: KernelConfig, seqlen_k: int, most: int) -> Subject:
    """A kernel of ours on one block of queries a batch entry, all of them against the same
    `seqlen_k` keys, with up to `most` entries (or what the calibration takes). Raises ValueError
    for a persistent kernel: its grid does not grow with the problem; and for gradients."""
    import flash_attention

    if isinstance(config, BackwardKernelConfig):
        raise ValueError(f"{config} computes gradients: expected a forward kernel")
    if config.PERSISTENT:
        raise ValueError(
            f"{config} is a persistent kernel, whose grid is at most one block an SM: expected one "
            "with a block for each tile of queries"
        )
    sms: int = torch.cuda.get_device_properties("cuda").multi_processor_count
    blocks_per_sm = residency(config).blocks_per_sm
    most = max(most, *calibration_blocks(sms, blocks_per_sm))
    dtype = config.dtype.to_torch_dtype()
    rows, d_head = config.blocks()[0], config.d_head
    q = torch.randn(most, rows, 1, d_head, device="cuda", dtype=dtype)
    k, v = (torch.randn(1, seqlen_k, 1, d_head, device="cuda", dtype=dtype) for _ in range(2))
    o = torch.empty_like(q)

    def launch(n: int) -> Callable[[], object]:
        ks, vs = k.expand(n, -1, -1, -1), v.expand(n, -1, -1, -1)
        return lambda: flash_attention.forward(config, q[:n], ks, vs, o[:n])

    name = f"{config.short_form()}, {seqlen_k} keys"
    return Subject(name, sms, blocks_per_sm, launch)
