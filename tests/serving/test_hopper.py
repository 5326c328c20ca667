"""The Hopper family's serving kernels, which the emulator runs where they are asked first."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import flash_attention
import flash_attention.emulated
from flash_attention.serving import launch
from flash_helpers.check.serving import ServeRule
from flash_helpers.check.tolerance import compare
from flash_helpers.kernels.contract import KernelConfig
from flash_helpers.kernels.sm90_serve.arguments import pack_launch_arguments
from flash_helpers.kernels.sm90_serve.config import HopperServeKernelConfig
from flash_helpers.kernels.sm90_serve.family import Sm90Serve
from flash_helpers.kernels.sm90_serve.sets import get_hopper_serve_kernel_configs
from tests.serving.problems import (
    EVERYTHING,
    NAN,
    Batch,
    each,
    ints,
    of_one_type,
    same_bits,
    stacked,
)

CAUSAL = ServeRule(causal=True)
SLOW = pytest.mark.slow
CONFIGS = [c for c in get_hopper_serve_kernel_configs() if not (c.paged or c.pack_gqa)]
SOME = of_one_type(CONFIGS)


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize(
    ("rule", "config"),
    [
        # Of those in turn one without a mask and one with it.
        pytest.param(
            rule, c, id=f"{rule}-{c}", marks=() if c in SOME[rule == CAUSAL :: 2] else SLOW
        )
        for rule in (ServeRule(), CAUSAL)
        for c in CONFIGS
    ],
)
def test_lengths(
    monkeypatch: pytest.MonkeyPatch, config: HopperServeKernelConfig, rule: ServeRule
) -> None:
    monkeypatch.setattr(launch, "choose", lambda call: config)
    batch = Batch(
        [300, 5, 0, 130, 129], [300, 260, 7, 130, 20], rule, heads=2, d=config.d_head,
        d_v=config.d_v(), dtype=config.dtype.to_torch_dtype(),
    )  # fmt: skip
    batch.check(batch.packed())


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize(
    "rule",
    [
        ServeRule(window=(9, 0)),
        ServeRule(causal=True, window=(200, 0)),
        ServeRule(window=(300, 5)),
        ServeRule(window=(-1, 63)),
        ServeRule(window=(0, 0)),
        ServeRule(causal=True, window=(150, -1), softcap=3.0, scale=0.2),
        ServeRule(softcap=50.0),
    ],
    ids=str,
)
def test_windows_and_soft_caps(rule: ServeRule) -> None:
    """With keys before the first that are not seen, and sinks: NaN lies there, and in all keys that
    no window reaches."""
    batch = Batch(
        [520, 64, 40], [600, 50, 300], rule, heads=2, kv_heads=1, leftpad=[30, 0, 140],
        sinks=torch.tensor([0.5, -2.0]),
    )  # fmt: skip
    batch.check(batch.packed())


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize("d", [128, 256])
@pytest.mark.parametrize(
    "outer",
    [{}, {400: 90.0}, {400: -90.0}, {300: -1e4}, {500: 90.0, 250: -90.0}, {450: float("inf")}],
    ids=str,
)
def test_soft_caps_without_maxima(outer: dict[int, float], d: int) -> None:
    """Scores within the cap, and keys whose scores are beyond it on either side."""
    batch = Batch(
        [70], [700], ServeRule(causal=True, softcap=6.0, scale=0.125), heads=2, kv_heads=1, d=d
    )
    batch.q[0][..., 0] = 1.5
    for key, size in outer.items():
        batch.k[0][key, :, 0] = size
    batch.check(batch.packed())


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize("softcap", [1e-6, 1e-2, 300.0, 1e3])
def test_large_and_tiny_soft_caps(softcap: float) -> None:
    """Whose polynomials have factors that fp32 does not hold. Of one head, two keys have scores
    near the cap; of the other, scores are far below large ones."""
    rule = ServeRule(causal=True, softcap=softcap, scale=0.0625)
    batch = Batch([70], [700], rule, heads=2, kv_heads=1, d=128)
    batch.q[0][:, :, 0] = torch.tensor([8.0, 0.0])
    batch.k[0][[620, 300], :, 0] = 1.8 * softcap
    batch.k[0][200:260] *= 20
    batch.check(batch.packed())


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize("d", [192, 256])
def test_windows_of_wide_heads(d: int) -> None:
    """Outputs lie where queries were, and groups pass over each other's blocks."""
    batch = Batch(
        [200, 64, 130], [300, 50, 400], ServeRule(window=(40, 3), softcap=9.0), heads=2, d=d,
        sinks=torch.tensor([0.5, -2.0]),
    )  # fmt: skip
    batch.check(batch.packed())


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize("rule", [CAUSAL, ServeRule(window=(40, 3))], ids=str)
def test_narrower_values(rule: ServeRule) -> None:
    """Head dimension 192 with values of 128: rows are stored one by one, and by whole warps."""
    batch = Batch([70, 0, 129], [100, 7, 300], rule, heads=2, d=192, d_v=128, leftpad=[9, 0, 0])
    results = batch.packed()
    batch.check(results)
    paged = batch.packed_over_pages(64)
    assert same_bits(results, paged)


@pytest.mark.usefixtures("hopper")
@each(CONFIGS)
def test_everything_at_once(
    monkeypatch: pytest.MonkeyPatch, config: HopperServeKernelConfig
) -> None:
    monkeypatch.setattr(launch, "choose", lambda call: config)
    batch = Batch(
        [70, 0, 190], [200, 65, 150], EVERYTHING, heads=6, d=config.d_head, d_v=config.d_v(),
        dtype=config.dtype.to_torch_dtype(), leftpad=[160, 0, 20], sinks=torch.randn(6),
    )  # fmt: skip
    batch.check(batch.packed())


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize("rule", [ServeRule(window=(700, 0)), CAUSAL], ids=str)
@pytest.mark.parametrize("higher", [[640], [896, 640], [640, 512], [640, 512, 384], [384, 300]])
def test_large_scores_before_the_first_key_of_a_window(rule: ServeRule, higher: list[int]) -> None:
    """Scores that grow towards the first key: steps without maxima end and begin again."""
    batch = Batch([70], [1000], rule, heads=2, kv_heads=1, d=128)
    batch.q[0][..., 0] = 4.0
    for i, key in enumerate(higher):
        batch.k[0][key, :, 0] = 32.0 * (i + 1)
    batch.check(batch.packed())


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize("d", [64, 256])
def test_a_sequence_has_the_same_bits_in_every_batch(d: int) -> None:
    """Whatever the other sequences' queries and values are, where the kernel is the same."""
    batch = Batch([140, 250, 131], [300, 300, 270], CAUSAL, heads=2, d=d)
    together = batch.packed()
    for i in range(3):
        alone = Batch([batch.queries[i]], [batch.keys[i]], CAUSAL, heads=2, d=d)
        alone.q, alone.k, alone.v = [batch.q[i]], [batch.k[i]], [batch.v[i]]
        assert same_bits(alone.packed(), together[i : i + 1])
    for tensors in (batch.q, batch.k, batch.v):
        tensors[1][:] = NAN
    poisoned = batch.packed()
    assert same_bits(poisoned[::2], together[::2])


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize("n", [34, 70])
def test_many_empty_sequences(n: int) -> None:
    lengths = [0] * n
    for i in (0, n // 2, n - 1):
        lengths[i] = 800
    batch = Batch(lengths, [5] * n, CAUSAL, heads=1, kv_heads=1)
    batch.check(batch.packed())


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize("rule", [ServeRule(), CAUSAL, ServeRule(window=(20, 3))], ids=str)
def test_sequences_of_one_group(rule: ServeRule) -> None:
    """Of 64 queries or fewer, which the consumers compute in turn, among others."""
    batch = Batch([64, 17, 64, 200, 1, 33, 64], [64, 17, 90, 200, 30, 20, 64], rule, heads=2)
    batch.check(batch.packed())


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize("d_head", [64, 128])
def test_keys_that_end_far_from_their_beginning(d_head: int) -> None:
    """The last block has rows of nobody, and the first key lies 300 KB before it."""
    batch = Batch([40, 35], [2500, 2207], CAUSAL, heads=1, kv_heads=1, d=d_head)
    batch.check(batch.packed())


@pytest.mark.usefixtures("hopper")
def test_tiles_that_blocks_ask_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The counter of a GPU, which is 0 again behind each launch."""
    counter = ints([0])
    outputs = HopperServeKernelConfig.outputs
    launch: Any = flash_attention.emulated.launch_serving

    def pack(_: Sm90Serve, config: HopperServeKernelConfig, record: bytes, __: object) -> bytes:
        return pack_launch_arguments(config, record, tile_counter=counter.data_ptr())

    def launch_with_counter(*arguments: Any) -> None:
        launch(*arguments[:-1], arguments[-1] | {"counter": counter})

    monkeypatch.setattr(Sm90Serve, "launch_arguments", pack)
    monkeypatch.setattr(
        HopperServeKernelConfig, "outputs", lambda *arguments: {*outputs(*arguments), "counter"}
    )
    monkeypatch.setattr(flash_attention.emulated, "launch_serving", launch_with_counter)
    batch = Batch([300, 40, 0, 64, 200], [300, 64, 5, 64, 220], CAUSAL, heads=4)
    for _ in range(2):
        batch.check(batch.packed())
        assert counter.item() == 0


@pytest.mark.usefixtures("hopper")
def test_caches_and_used_lengths() -> None:
    """As many queries each, and caches of more keys than are used."""
    batch = Batch([70, 70], [200, 75], ServeRule(window=(90, 0)), heads=2, leftpad=[140, 0])
    batch.check(batch.cached(210))


@pytest.mark.usefixtures("hopper")
def test_rows_that_are_not_used_stay() -> None:
    batch = Batch([130, 100], [90, 90])
    q, starts = stacked(batch.q)
    k, key_starts = stacked(batch.k)
    v, _ = stacked(batch.v)
    wide = torch.full((*q.shape[:2], 72), 7.0, dtype=q.dtype)
    out = wide[..., :64]
    used: dict[str, Any] = {"seqused_q": ints([100, 37]), "seqused_k": ints([80, 0])}
    flash_attention.flash_attn_varlen_func(q, k, v, starts, key_starts, out=out, **used)
    written = torch.zeros(wide.shape, dtype=torch.bool)
    written[3:103, :, :64] = written[133:170, :, :64] = True
    assert (wide[~written] == 7.0).all() and torch.isfinite(wide[written]).all()
    assert not wide[133:170, :, :64].any()


@pytest.mark.usefixtures("hopper")
def test_flash_attn_func_with_a_window() -> None:
    rule = ServeRule(causal=True, window=(100, 0))
    batch = Batch([150, 150], [220, 220], rule)
    q, k, v = (torch.stack(x).nan_to_num() for x in (batch.q, batch.k, batch.v))
    o = flash_attention.flash_attn_func(q, k, v, causal=True, window_size=(100, 0))
    assert isinstance(o, torch.Tensor)
    for i in range(2):
        expected, _ = batch.reference(i)
        assert compare(o[i], expected).passed


def test_calls_for_the_other_family(launched: list[KernelConfig]) -> None:
    """Few queries, odd pages, splits and other head dimensions."""
    few = Batch([1, 40], [70, 70])
    few.check(few.packed())
    prompt = Batch([70], [70], CAUSAL)
    prompt.check(prompt.packed(num_splits=1))
    prompt.check(prompt.paged(12))
    for d, d_v in ((40, 40), (128, 64)):
        other = Batch([70], [70], CAUSAL, d=d, d_v=d_v)
        other.check(other.packed())
    assert len(launched) == 5
    assert not any(isinstance(config, HopperServeKernelConfig) for config in launched)
