"""The public functions: check, choose the kernel by its configuration, launch on the tensors'
device."""

import difflib
import time
from functools import cache
from typing import Any

import torch
from torch.autograd import forward_ad

from flash_helpers.kernels.contract import KernelConfig, Variant
from flash_helpers.kernels.names import parse_kernel_name_into_config
from flash_helpers.kernels.registry import violations
from flash_helpers.kernels.sets import known_configs
from flash_helpers.kernels.variants import takes_everything

from . import emulated, jit
from .checks.arguments import make_plan
from .checks.eager import check_class, require_eager
from .checks.kinds import require_tensor
from .checks.memory import check_no_overlap
from .checks.scale import with_positive_scale
from .library import load_library


class KernelNotBuiltError(ValueError):
    """The configuration is valid, but its kernel is not in this build."""


def available_kernels(*, on_first_use: bool = False) -> list[KernelConfig]:
    """The configurations whose kernels are in this build, sorted by kernel name; with
    `on_first_use` also every other of the current GPU, as they are compiled when they are first
    wanted (jit.py)."""
    built = _configs_of(tuple(kernel_ids()))
    if not on_first_use or not jit.is_on():
        return list(built)
    capability = torch.cuda.get_device_capability()
    taken = (config for config in known_configs() if not violations(config, capability))
    return sorted({*built, *taken}, key=lambda config: config.kernel_name())


@cache
def _configs_of(names: tuple[str, ...]) -> tuple[KernelConfig, ...]:
    return tuple(map(parse_kernel_name_into_config, names))


def forward(
    kernel_cfg: KernelConfig,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor | None = None,
    *,
    softmax_scale: float | None = None,
    causal: bool = False,
    lse: torch.Tensor | None = None,
) -> torch.Tensor:
    """softmax(scale * q k^T) v with the kernel of one configuration.

    Args:
        kernel_cfg: the kernel, of any valid configuration. One that is not among
            `available_kernels()` is compiled on first use, for a CUDA device by NVRTC (about a
            second), for CPU tensors by nvcc and g++ for the emulator.
        q: (batch, seqlen_q, heads, d_head), fp16 or bf16 as `kernel_cfg.dtype` says; strides are
            multiples of 8 elements, the last dimension is contiguous; 16-byte aligned.
        k, v: (batch, seqlen_k, kv_heads, d_head); kv_heads divides heads (query head h reads KV
            head h // (heads // kv_heads)). Any lengths; without keys (seqlen_k 0) the output is 0.
        o: the output, shaped like q; allocated if None.
        softmax_scale: any finite number, defaults to d_head ** -0.5. With 0 a row's output is the
            mean of the v it sees; for a negative one q is copied.
        causal: query i sees only keys j <= i + seqlen_k - seqlen_q; a query that sees none has
            output 0 and log-sum-exp -inf.
        lse: if given, a contiguous fp32 tensor (batch, heads, seqlen_q) that receives the natural
            logarithm of the sum of exp(scale * q k^T) of every row.

    Returns:
        `o`. On CUDA the kernel is queued on the current stream of q's device; nothing waits, so
        the call can be captured in a CUDA graph.

    Raises:
        TypeError, ValueError: an argument that the kernel does not take; nothing was launched.
        NotImplementedError: the call is recorded (torch.jit.trace, make_fx, torch.export), or
            tensors are fake; nothing was launched (a RuntimeError).
        KernelNotBuiltError: this build does not have the kernel and it is not compiled now, since
            there is no NVRTC or FLASH_ATTENTION_JIT=0; or no build has the configuration's kernel
            for lengths that are not multiples of B_r and B_c and for `causal` (a ValueError).
        flash_attention._C.CudaError: what CUDA reported (a RuntimeError).
        flash_helpers.emulator.EmulatorError: what the emulator found in a kernel (CPU tensors).
        BuildError, RuntimeError, UnsafeCacheError, CacheLockTimeout (first call of a configuration
            that is not built): it could not be compiled or kept.

    The algorithm is FlashAttention-2 (Dao 2023, https://arxiv.org/abs/2307.08691).
    """
    require_eager()
    if softmax_scale is not None:
        q, softmax_scale = with_positive_scale(q, softmax_scale)
    if o is None:
        o = output_like(q)
    if not launch_again(kernel_cfg, q, k, v, o, lse, softmax_scale, causal):
        launch_checked(kernel_cfg, q, k, v, o, lse, softmax_scale, causal)
    return o


def forward_timed(
    kernel_cfg: KernelConfig,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor | None = None,
    *,
    softmax_scale: float | None = None,
    causal: bool = False,
    lse: torch.Tensor | None = None,
) -> tuple[torch.Tensor, float]:
    """`forward`, and how long it took in milliseconds: on CUDA between two events around the launch
    on the current stream (waits for the kernel), on the CPU by the wall clock of the emulation."""
    require_tensor("q", q)
    if q.device.type != "cuda":
        began = time.perf_counter()
        o = forward(kernel_cfg, q, k, v, o, softmax_scale=softmax_scale, causal=causal, lse=lse)
        return o, (time.perf_counter() - began) * 1e3
    with torch.cuda.device(q.device):
        before = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        after = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        before.record()
        o = forward(kernel_cfg, q, k, v, o, softmax_scale=softmax_scale, causal=causal, lse=lse)
        after.record()
        after.synchronize()
    return o, before.elapsed_time(after)


def launch_again(
    key: object,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor | None,
    softmax_scale: float | None,
    causal: bool,
) -> bool:
    """Launches a call that is like one that `launch_checked` remembered for `key`; False if there
    is none, and nothing was done."""
    if getattr(forward_ad, "_current_level", -1) >= 0:
        return False  # the cache does not see forward-mode derivatives
    cache = launch_cache() if getattr(o, "is_cuda", False) else None
    if cache is None or any(getattr(x, "is_neg", bool)() for x in (q, k, v, o)):
        return False  # the cache sees the memory, which has the other sign
    launched: bool = cache.again(
        key, q, k, v, o, lse, softmax_scale, causal, torch.is_grad_enabled()
    )
    return launched


def launch_checked(
    kernel_cfg: KernelConfig,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor | None,
    softmax_scale: float | None,
    causal: bool,
    key: object = None,
) -> None:
    """Checks everything, launches, and lets later calls of the same kind skip the checks: those
    for `key`, by default the configuration."""
    plan = make_plan(kernel_cfg, q, k, v, o, lse, softmax_scale, causal)
    outputs = {"o": o} if lse is None else {"o": o, "lse": lse}
    check_no_overlap(outputs, {"q": q, "k": k, "v": v})
    args = plan.args(
        q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr(), 0 if lse is None else lse.data_ptr()
    )
    if q.device.type == "cpu":
        emulated.launch(plan, args, {"q": q, "k": k, "v": v}, outputs)
    else:
        device = q.device.index
        kernel_id = kernel_id_of(kernel_cfg, plan.variant, device)
        load_library().launch(
            kernel_id, args, device, torch.cuda.current_stream(device).cuda_stream
        )
        cache = launch_cache()
        if cache is not None:
            key = kernel_cfg if key is None else key
            cache.remember(key, q, k, v, o, lse, softmax_scale, causal, kernel_id, args)


@cache
def launch_cache() -> Any:
    """The extension's cache of checked calls; None where torch is older than 2.10 and every call
    is checked in full."""
    api = exchange_api()
    return load_library().LaunchCache(torch.Tensor, api) if api else None


def exchange_api() -> Any:
    """PyTorch's table of C functions that describe tensors (DLPack); None before 2.10."""
    return getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)


@cache
def kernel_ids() -> dict[str, int]:
    """Of the build. Asked before anything is compiled by this process."""
    return {name: i for i, name in enumerate(load_library().kernel_names())}


def built_kernel_id(config: KernelConfig, variant: Variant) -> int | None:
    """Of one of the configuration's kernels, if it is in this build."""
    kernel_id = kernel_ids().get(config.kernel_name())
    there = kernel_id is not None and variant.value in load_library().variants(kernel_id)
    return kernel_id if there else None


def kernel_id_of(config: KernelConfig, variant: Variant, device: int) -> int:
    """For the launch of one of the configuration's kernels on a device: that of the build, else one
    that is compiled now (jit.py). Raises KernelNotBuiltError, and what jit.kernel_id() does."""
    kernel_id = built_kernel_id(config, variant)
    if kernel_id is not None:
        return kernel_id
    if config.kernel_name() in kernel_ids():
        raise KernelNotBuiltError(_whole_blocks_message(config))
    if refusal := jit.refusal():
        raise KernelNotBuiltError(_not_built_message(config, refusal))
    return jit.kernel_id(config, variant, device)


def _not_built_message(config: KernelConfig, refusal: str) -> str:
    built = available_kernels()
    close = difflib.get_close_matches(
        config.short_form(), [c.short_form() for c in built], n=3, cutoff=0.0
    )
    return (
        f"{config.short_form()} is not in this build ({len(built)} kernels, "
        f"KERNELS={load_library().kernel_set()}), and {refusal}. The nearest that are: "
        f"{'; '.join(close) or 'none'}. "
        "Rebuild with KERNELS set to a word that contains it, or pick one of "
        "flash_attention.available_kernels()."
    )


def _whole_blocks_message(config: KernelConfig) -> str:
    built = (c for c in available_kernels() if c.dtype == config.dtype)
    names = [c.short_form() for c in built if takes_everything(c)]
    close = difflib.get_close_matches(config.short_form(), names, n=3, cutoff=0.0)
    return (
        f"{config.short_form()} is built for lengths of q and k that are multiples of B_r = "
        f"{config.blocks()[0]} and B_c = {config.blocks()[1]}, without causal. The nearest "
        f"kernels of this build that take everything are: {'; '.join(close) or 'none'}."
    )


def output_like(q: torch.Tensor) -> torch.Tensor:
    """An uninitialised output for `q`; TypeError if it is no tensor, or of a class that has its
    values elsewhere."""
    if type(q) is not torch.Tensor:
        require_tensor("q", q)
        check_class("q", q)
    return torch.empty_like(q)
