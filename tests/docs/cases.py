"""What the rows of docs/support.md mean, as code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import flash_attention
from flash_attention import interface, jit, library
from flash_helpers.compilers.nvcc_wheels import find_or_install_nvcc
from flash_helpers.emulator.door.compile import find_toolchain
from flash_helpers.kernel_configs import get_sm80_kernel_configs
from flash_helpers.kernels.contract import Variant

CONFIG = get_sm80_kernel_configs("prog")[-1]  # fp16, d_head 128, 64 x 64, 4 warps
PLAIN = get_sm80_kernel_configs("prog")[0]
SHAPE = (1, 64, 1, 128)

Qkv = tuple[Tensor, Tensor, Tensor]
Computed = tuple[Tensor, Qkv, dict[str, Any]]  # output, inputs, what else the reference is given
Provoke = Callable[[pytest.MonkeyPatch], object]


@dataclass(frozen=True)
class InSource:
    """A refusal that takes a GPU, or more memory than there is; its words stand in this file."""

    file: str


def draw(
    shape: tuple[int, ...] = SHAPE, dtype: torch.dtype = torch.float16, device: str = "cpu"
) -> Tensor:
    return torch.randn(shape).to(device, dtype)


# --- refused -----------------------------------------------------------------------------------


def call(config: Any = CONFIG, **replaced: Any) -> Provoke:
    """forward() with good arguments but those replaced; functions are called for their value."""

    def provoke(_: pytest.MonkeyPatch) -> object:
        arguments: dict[str, Any] = {name: draw() for name in "qkv"}
        arguments |= {n: value() if callable(value) else value for n, value in replaced.items()}
        return flash_attention.forward(config, **arguments)

    return provoke


def changed(**fields: Any) -> Provoke:
    return call(replace(CONFIG, **fields))


def _misaligned() -> Tensor:
    return torch.zeros(64 * 128 + 1, dtype=torch.float16)[1:].view(SHAPE)


def freed() -> Tensor:
    found = draw()
    found.untyped_storage().resize_(0)
    return found


def _lse_in_o(_: pytest.MonkeyPatch) -> None:
    o = draw()
    lse = o.view(torch.float32).flatten()[:64].view(1, 1, 64)
    flash_attention.forward(CONFIG, draw(), draw(), draw(), o, lse=lse)


def _o_is_q(_: pytest.MonkeyPatch) -> object:
    q = draw()
    return flash_attention.forward(CONFIG, q, draw(), draw(), q)


def _not_built(monkeypatch: pytest.MonkeyPatch) -> object:
    library = SimpleNamespace(
        kernel_names=lambda: [get_sm80_kernel_configs("prog")[0].kernel_name()],
        kernel_set=lambda: "prog",
    )
    monkeypatch.setenv(jit.VARIABLE, "0")
    monkeypatch.setattr(interface, "load_library", lambda: library)
    interface.kernel_ids.cache_clear()
    try:
        return interface.kernel_id_of(CONFIG, Variant.WHOLE, 0)
    finally:
        interface.kernel_ids.cache_clear()


def _no_general_kernel(monkeypatch: pytest.MonkeyPatch) -> object:
    library = SimpleNamespace(
        kernel_names=lambda: sorted(c.kernel_name() for c in (PLAIN, CONFIG)),
        variants=lambda kernel_id: ["whole", "any"] if kernel_id == 0 else ["whole"],
    )
    monkeypatch.setattr(interface, "load_library", lambda: library)
    interface.kernel_ids.cache_clear()
    try:
        return interface.kernel_id_of(PLAIN, Variant.ANY, 0)
    finally:
        interface.kernel_ids.cache_clear()


def _no_extension(monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.delenv(library.LIBRARY_VARIABLE, raising=False)

    def absent(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr("importlib.import_module", absent)
    return library.load_library.__wrapped__()


def _no_compiler(monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.setenv("PATH", "/nonexistent")
    return find_toolchain.__wrapped__(None)


def _no_nvcc(monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.setenv("CUDACXX", "/nonexistent/nvcc")
    return find_or_install_nvcc()


REFUSED: Mapping[str, Provoke | InSource] = {
    "a mask other than causal": call(mask=draw),
    "causal is not a bool": call(causal=1),
    "dropout": call(dropout_p=0.1),
    "kernel_cfg is a string": call(CONFIG.short_form()),
    "d_head other than 64 and 128": changed(d_head=256),
    "B_r other than 64 and 128": changed(B_r=96),
    "B_c other than 32, 64 and 128": changed(B_c=48),
    "n_warps other than 4 and 8": changed(n_warps=2),
    "8 warps on 64 query rows": changed(n_warps=8),
    "load tiles that do not divide the k-tiles": changed(K_mma_load_K_tiles=3),
    "q is not a tensor": call(q=[1.0], o=draw),
    "fp32, fp64, fp8 or integers": call(q=draw().float(), o=draw),
    "dtypes that differ": call(v=lambda: draw(dtype=torch.bfloat16)),
    "tensors on different devices": call(k=lambda: draw(device="meta")),
    "sparse or jagged tensors": call(q=lambda: draw().to_sparse(), o=draw),
    "not four dimensions": call(q=lambda: draw((64, 1, 128))),
    "an empty dimension": call(q=lambda: draw((0, 64, 1, 128))),
    "a head dimension that is not the configuration's": call(k=lambda: draw((1, 64, 1, 64))),
    "k and v of different shapes": call(v=lambda: draw((1, 128, 1, 128))),
    "o not shaped like q": call(o=lambda: draw((1, 128, 1, 128))),
    "batch sizes that differ": call(**dict.fromkeys("kv", lambda: draw((2, 64, 1, 128)))),
    "query heads that are not a multiple of the KV heads": call(
        **dict.fromkeys("kv", lambda: draw((1, 64, 2, 128)))
    ),
    "a length above 2^31 - 1025": call(
        **dict.fromkeys("kv", lambda: draw((1, 1, 1, 128)).expand(-1, 2**31 - 1, -1, -1))
    ),
    "a last dimension that is not contiguous": call(
        k=lambda: draw((1, 1, 128, 64)).permute(0, 3, 1, 2)
    ),
    "strides that are not a multiple of 8 elements": call(
        v=lambda: draw((1, 64, 1, 129))[..., :128]
    ),
    "an address that is not a multiple of 16 bytes": call(q=_misaligned, o=draw),
    "an output that shares memory with an input": _o_is_q,
    "an output whose elements overlap": call(
        q=lambda: draw((2, 64, 1, 128)), k=lambda: draw((2, 64, 1, 128)),
        v=lambda: draw((2, 64, 1, 128)), o=lambda: draw().expand(2, -1, -1, -1),
    ),
    "a tensor that requires a gradient": call(q=lambda: draw().requires_grad_(), o=draw),
    "memory that `lse` shares with another tensor": _lse_in_o,
    "a gradient of `o` or `lse`": call(lse=lambda: torch.zeros(1, 1, 64, requires_grad=True)),
    "a negated view": call(k=lambda: torch._neg_view(draw())),
    "a tensor whose memory was freed": call(k=freed),
    "a device other than CUDA and CPU": call(
        **{name: lambda: draw(device="meta") for name in "qkvo"}
    ),
    "softmax_scale NaN or infinite": call(softmax_scale=float("nan")),
    "softmax_scale is not a number": call(softmax_scale="0.1"),
    "lse of another dtype, shape or stride": call(lse=lambda: torch.zeros(1, 64, 1)),
    "lse on another device": call(lse=lambda: torch.zeros(1, 1, 64, device="meta")),
    "lse is not a tensor": call(lse=3),
    "more than 2^31 - 1 thread blocks": InSource("flash_attention/checks/arguments.py"),
    "CUDA tensors, a kernel that is not built, and `FLASH_ATTENTION_JIT=0` or no NVRTC": _not_built,
    "CUDA tensors, a length that is not a multiple of a block, or causal, and a kernel that is "
    "built for whole blocks only": _no_general_kernel,
    "CUDA tensors, no extension at all": _no_extension,
    "CUDA tensors on a GPU that the build is not for": InSource("csrc/runtime/launcher.cpp"),
    "CPU tensors, no C++ compiler": _no_compiler,
    "CPU tensors, CUDACXX that is not a compiler": _no_nvcc,
}  # fmt: skip
