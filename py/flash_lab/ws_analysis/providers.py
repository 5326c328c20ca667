"""Who computes attention here: two Gluon kernels, two of our CUDA kernels, and references."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from flash_helpers.base.dtypes import DType
from flash_helpers.base.lazy import torch
from flash_helpers.check.judge import Qkv
from flash_helpers.kernels.contract import KernelConfig
from flash_helpers.kernels.registry import family_of
from flash_helpers.kernels.sets import known_configs

from ..bench.measure import NotBuiltError, SkippedError
from ..bench.providers import find_reference

TRITON, CUDA = "triton", "cuda"
_WARP = 32


@dataclass(frozen=True)
class WsProvider:
    """A warp-specialised kernel. `ping_pong`: the seed's WS PP."""

    name: str
    family: str
    ping_pong: bool


WS_PROVIDERS = {
    provider.name: provider
    for provider in (
        WsProvider("triton-ws-fp16", TRITON, False),
        WsProvider("triton-ws-pp-fp16", TRITON, True),
        WsProvider("cuda-ws-fp16", CUDA, False),
        WsProvider("cuda-ws-pp-fp16", CUDA, True),
    )
}
SEED_PROVIDERS = ("triton-ws-fp16", "triton-ws-pp-fp16")
PROVIDERS = (*WS_PROVIDERS, "cudnn", "fa2", "fa4")
PAIRS = tuple((f"{family}-ws-fp16", f"{family}-ws-pp-fp16") for family in (TRITON, CUDA))


@dataclass(frozen=True)
class Bound:
    """A provider on the tensors of one problem. `parameters` by the seed's names; `tuned` says
    where they come from; `config` is what the kernel's own module calls it."""

    run: Callable[[], torch.Tensor]
    label: str
    parameters: dict[str, int | str]
    tuned: str = ""
    note: str = ""
    config: Any = None


def bind(
    name: str, tensors: Qkv, out: torch.Tensor | None, causal: bool, *, tune: bool = True
) -> Bound:
    """`name` on q, k, v of (batch, seq, heads, d). `out` is written where the provider can.

    `tune`: time configurations where none is known yet; otherwise take the cached one, else a
    general one (under a profiler, timing runs would be profiled too).

    Raises SkippedError or NotBuiltError: it cannot run here, and why.
    """
    provider = WS_PROVIDERS.get(name)
    if provider is None:
        label, note, function = find_reference(name, causal)
        return Bound(partial(function, *tensors), label, {}, note=note)
    if provider.family == TRITON:
        return _bind_gluon(provider, tensors, out, causal, tune)
    return _bind_cuda(provider, tensors, out, causal)


def gluon() -> Any:
    """flash_attention.gluon, which needs triton. Raises SkippedError with the reason."""
    try:
        module = importlib.import_module("flash_attention.gluon")
        importlib.import_module("flash_attention.triton_kit.versions").require_triton()
        return module
    except ImportError as error:
        raise SkippedError(f"flash_attention.gluon cannot be used: {error}") from error


def _bind_gluon(
    provider: WsProvider, tensors: Qkv, out: torch.Tensor | None, causal: bool, tune: bool
) -> Bound:
    from flash_attention.triton_kit.tuning import NotTunedError

    module = gluon()
    q, k, v = tensors
    kind = {"ping_pong": provider.ping_pong, "causal": causal}
    note = ""
    try:
        tuned = module.best_config(q, k, v, **kind, measure_now=tune)
        config = tuned.config
        source = "autotuned, from the cache" if tuned.cached else "autotuned"
        if tuned.failed:
            note = f"{len(tuned.failed)} configurations did not run; the first: {tuned.failed[0]}"
    except NotTunedError:
        config, source = module.configs(provider.ping_pong, q.shape[3])[0], "not tuned"
    run = partial(module.forward, q, k, v, **kind, config=config, out=out)
    parameters = {
        **config.as_dict(), "num_warps": config.num_warps, "num_stages": config.num_stages,
    }  # fmt: skip
    return Bound(run, provider.name, parameters, source, note, config)


def _bind_cuda(provider: WsProvider, tensors: Qkv, out: torch.Tensor | None, causal: bool) -> Bound:
    import flash_attention

    q, k, v = tensors
    config, source = cuda_config(provider, q.dtype, q.shape[3], q.shape[1], causal, q.device)
    run = partial(flash_attention.forward, config, q, k, v, out, causal=causal)
    return Bound(run, provider.name, cuda_parameters(config), source, config=config)


def cuda_config(
    provider: WsProvider, dtype: torch.dtype, d_head: int, seq_len: int, causal: bool,
    device: torch.device,
) -> tuple[KernelConfig, str]:  # fmt: skip
    """The kernel of this kind, and on whose word: the tuning table's best that is built, else
    what its family prefers. Raises NotBuiltError."""
    from flash_attention import LibraryNotFoundError, available_kernels
    from flash_attention.tuning import tuned_choice

    wanted = (DType.from_torch_dtype(dtype), d_head, provider.ping_pong)
    try:
        if device.type == "cpu":  # the emulator compiles any
            found = _warp_specialised(known_configs(), wanted)
        else:
            found = _warp_specialised(available_kernels(), wanted) or _warp_specialised(
                available_kernels(on_first_use=True), wanted
            )
    except LibraryNotFoundError as error:
        raise NotBuiltError(str(error)) from error
    if not found:
        words = "with" if provider.ping_pong else "without"
        raise SkippedError(
            f"this build has no warp-specialised kernel {words} ping-pong for {wanted[0].name} "
            f"and head dimension {d_head}: KERNELS=all has them for some head dimensions"
        )
    try:
        choice = tuned_choice(
            dtype, d_head, seq_len, causal=causal, device=device,
            family=found[0].FAMILY,
        )  # fmt: skip
        for config in choice.entry.configs:
            if config in found:
                return config, f"from the tuning table, {choice.reason}"
    except LookupError:
        pass
    return max(
        found, key=family_of(found[0]).promise
    ), "the family's general choice, not tuned for this length"


def _warp_specialised(
    kernels: Iterable[KernelConfig], wanted: tuple[DType, int, bool]
) -> list[KernelConfig]:
    return [
        config
        for config in kernels
        if (ws := config.warp_specialisation()) is not None
        and (config.dtype, config.d_head, ws.ping_pong) == wanted
    ]


def cuda_parameters(config: KernelConfig) -> dict[str, int | str]:
    """The parameters of a warp-specialised kernel in the seed's words: `num_warps` are those of one
    group, `num_stages` is 0, since nothing is left to a compiler's pipelining."""
    ws = config.warp_specialisation()
    if ws is None:
        return {}
    block_m, block_n = config.blocks()
    return {
        "BLOCK_M": block_m,
        "BLOCK_N": block_n,
        "NUM_BUFFERS": ws.n_buffers,
        "NUM_MMA_WARPS": ws.n_mma_groups * ws.group_threads // _WARP,
        "NUM_MMA_GROUPS": ws.n_mma_groups,
        "num_warps": ws.group_threads // _WARP,
        "num_stages": 0,
    }
