"""Models of diffusers whose attention is PyTorch's scaled_dot_product_attention, which
`flash_attention.enable()` replaces: as near to the model in fp32 as with PyTorch's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import flash_attention
from flash_attention.drop_in import sdpa_kernels

pytest.importorskip("diffusers")
from diffusers import FluxTransformer2DModel, UNet2DConditionModel
from diffusers.models.attention_dispatch import attention_backend

pytestmark = pytest.mark.skipif(
    not hasattr(torch.library, "get_kernel"), reason="this torch is too old for it"
)
Inputs = dict[str, Tensor]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What these kernels computed, once they are enabled."""
    found: list[str] = []

    def counted(name: str) -> None:
        function = getattr(sdpa_kernels, name)

        def call(*arguments: Any) -> Any:
            found.append(name)
            return function(*arguments)

        monkeypatch.setattr(sdpa_kernels, name, call)

    counted("_attend")
    counted("_gradients")
    yield found
    flash_attention.disable()


def flux() -> tuple[Any, Inputs]:
    """One block of each kind; text and image in one sequence, with rotary embeddings."""
    model = FluxTransformer2DModel(
        in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=64,
        num_attention_heads=2, joint_attention_dim=32, pooled_projection_dim=32,
        axes_dims_rope=(16, 24, 24),
    )  # fmt: skip
    places = torch.stack(torch.meshgrid(*map(torch.arange, (1, 4, 5)), indexing="ij"), -1)
    inputs = {
        "hidden_states": torch.randn(1, 20, 4), "encoder_hidden_states": torch.randn(1, 7, 32),
        "pooled_projections": torch.randn(1, 32), "timestep": torch.tensor([0.5]),
        "img_ids": places.reshape(20, 3).float(), "txt_ids": torch.zeros(7, 3),
    }  # fmt: skip
    return model, inputs


def unet() -> tuple[Any, Inputs]:
    """Self-attention of an image, and cross-attention to another length."""
    model = UNet2DConditionModel(
        sample_size=8, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(64,),
        down_block_types=("CrossAttnDownBlock2D",), up_block_types=("CrossAttnUpBlock2D",),
        cross_attention_dim=32, attention_head_dim=1,
    )  # fmt: skip
    inputs = {
        "sample": torch.randn(1, 4, 6, 6), "timestep": torch.tensor([10]),
        "encoder_hidden_states": torch.randn(1, 9, 32),
    }  # fmt: skip
    return model, inputs


MODELS: dict[str, tuple[Callable[[], tuple[Any, Inputs]], int]] = {
    "Flux": (flux, 2),
    "U-Net": (unet, 8),
}


def results(model: Any, inputs: Inputs) -> list[Tensor]:
    """The output, and the gradient of the first parameter."""
    model.zero_grad()
    o = model(**inputs, return_dict=False)[0]
    o.float().square().sum().backward()
    return [o.detach(), next(model.parameters()).grad]


def halves(inputs: Inputs) -> Inputs:
    return {name: x.bfloat16() if x.is_floating_point() else x for name, x in inputs.items()}


@pytest.mark.parametrize("backend", ["native", "_native_flash"])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_takes_them(name: str, backend: str, calls: list[str]) -> None:
    torch.manual_seed(3)
    made, n_calls = MODELS[name]
    model, inputs = made()
    with attention_backend("native"):
        exact = results(model, inputs)
    model, inputs = model.bfloat16(), halves(inputs)
    with attention_backend(backend):
        theirs = results(model, inputs)
        flash_attention.enable(emulator=True)
        ours = results(model, inputs)
    assert calls == ["_attend"] * n_calls + ["_gradients"] * n_calls
    for one, other, reference in zip(ours, theirs, exact, strict=True):
        error, allowed = ((x.float() - reference).abs().max() for x in (one, other))
        assert 0 < error <= 2 * allowed
