"""Models of transformers that call flash-attn's functions, which are ours here: generating with its
caches gives the tokens of eager attention, a step of packed sequences the gradients of padded."""

from __future__ import annotations

from collections import Counter
from inspect import signature
from typing import Any

import pytest
import torch

from flash_attention import compat

pytest.importorskip("transformers")
from transformers import (
    GptOssConfig,
    GptOssForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PretrainedConfig,
    modeling_flash_attention_utils,
)

SIZES: dict[str, Any] = {
    "vocab_size": 97, "hidden_size": 128, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64, "pad_token_id": 0,
    "bos_token_id": None, "eos_token_id": None, "initializer_range": 0.3,
}  # fmt: skip
PROMPTS = [list(range(5, 25)), [40, 41, 42, 50, 51, 52, 53]]
N_NEW = 8


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each function was called. transformers looks for an installed package flash-attn;
    what it would import from it is given to it."""
    found: Counter[str] = Counter()

    def counted(name: str) -> Any:
        function = getattr(compat, name)

        def call(*arguments: Any, **options: Any) -> Any:
            found[name] += 1
            return function(*arguments, **options)

        call.__signature__ = signature(function)  # type: ignore[attr-defined]
        return call

    names = ("flash_attn_func", "flash_attn_varlen_func", "flash_attn_with_kvcache")
    pads = compat.bert_padding.pad_input, compat.bert_padding.unpad_input
    functions = (*map(counted, names), *pads)
    monkeypatch.setattr(modeling_flash_attention_utils, "_lazy_imports", lambda *_, **__: functions)
    monkeypatch.setattr(modeling_flash_attention_utils, "_loaded_implementation", None)
    return found


def with_flash_attn(model: Any) -> Any:
    """Without the checks of what is installed."""
    PretrainedConfig._attn_implementation.fset(model.config, "flash_attention_2")
    return model


def model_of(kind: Any, config: Any, **options: Any) -> Any:
    torch.manual_seed(0)
    return kind(config(**(SIZES | options), attn_implementation="eager")).to(torch.float16).eval()


def padded(prompts: list[list[int]]) -> dict[str, torch.Tensor]:
    """On the left."""
    longest = max(map(len, prompts))
    ids = [[0] * (longest - len(x)) + x for x in prompts]
    mask = [[0] * (longest - len(x)) + [1] * len(x) for x in prompts]
    return {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}


def generated(model: Any, inputs: dict[str, torch.Tensor], **options: Any) -> torch.Tensor:
    found: torch.Tensor = model.generate(**inputs, max_new_tokens=N_NEW, do_sample=False, **options)
    return found


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize(
    ("kind", "config", "options"),
    [
        (LlamaForCausalLM, LlamaConfig, {}),
        (MistralForCausalLM, MistralConfig, {"sliding_window": 6}),
        (GptOssForCausalLM, GptOssConfig, {
            "sliding_window": 6, "num_local_experts": 2, "num_experts_per_tok": 1,
        }),
    ],
    ids=["llama", "sliding", "sinks"],
)  # fmt: skip
def test_generated_tokens(
    calls: Counter[str], kind: Any, config: Any, options: dict[str, Any], cache: str
) -> None:
    model = model_of(kind, config, **options)
    static = (
        {"disable_compile": True, "cache_implementation": "static"} if cache == "static" else {}
    )
    expected = generated(model, padded(PROMPTS))
    assert not calls
    assert torch.equal(generated(with_flash_attn(model), padded(PROMPTS), **static), expected)
    assert calls["flash_attn_varlen_func"] and calls.total() == 2 * N_NEW


def test_tokens_of_a_paged_cache(calls: Counter[str]) -> None:
    model = model_of(LlamaForCausalLM, LlamaConfig)
    expected = [generated(model, padded([prompt]))[0, len(prompt) :].tolist() for prompt in PROMPTS]
    model = with_flash_attn(model)
    found = model.generate_batch(inputs=PROMPTS, max_new_tokens=N_NEW, warmup=False)
    tokens = [output.generated_tokens for output in found.values()]
    assert tokens == expected
    assert calls["flash_attn_varlen_func"] + calls["flash_attn_with_kvcache"]


def test_a_training_step_of_packed_sequences(calls: Counter[str]) -> None:
    """As TRL packs them: one row, with positions that begin again."""
    model = model_of(LlamaForCausalLM, LlamaConfig, initializer_range=0.05).train()
    ids = torch.tensor([[*PROMPTS[0], *PROMPTS[1]]])
    positions = torch.tensor([[i for prompt in PROMPTS for i in range(len(prompt))]])
    firsts = positions == 0

    batch = padded(PROMPTS)
    kept = batch["attention_mask"].bool()
    labels = batch["input_ids"].masked_fill(~kept, -100)
    labels[torch.arange(2), kept.int().argmax(dim=1)] = -100
    at = (batch["attention_mask"].cumsum(1) - 1).clamp(min=0)
    expected = model(**batch, position_ids=at, labels=labels).loss
    expected.backward()
    gradients = {name: x.grad.clone() for name, x in model.named_parameters()}
    model.zero_grad()

    loss = with_flash_attn(model)(
        input_ids=ids, position_ids=positions, labels=ids.masked_fill(firsts, -100), use_cache=False
    ).loss
    loss.backward()
    assert calls == {"flash_attn_varlen_func": 2}
    torch.testing.assert_close(loss, expected, rtol=2e-3, atol=2e-3)
    for name, x in model.named_parameters():
        error = (x.grad.double() - gradients[name].double()).norm()
        assert error <= 0.01 * gradients[name].double().norm(), name
