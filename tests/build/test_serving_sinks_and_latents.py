"""Serving calls like those that the extension remembers: with sinks, and with latent caches."""

from __future__ import annotations

from .conftest import Tree
from .test_serving_calls import answers


def test_sinks_that_kernels_cannot_read_are_converted_for_each_call(tree: Tree) -> None:
    bf16 = "Parameter(9, 4, code=4, requires_grad=True)"
    found = answers(
        tree,
        f"globals().update(grad=False) or remember(cached() | {{'s_aux': {bf16}}}, sinks=7 << 20)",
        f"ask(s_aux={bf16})",
        "ask(cached(batch=9), learnable_sink=Tensor(10, 4, code=4))",
        "converted",
        "globals().update(grad=True) or ask(s_aux=Tensor(11, 4, code=4))",
        f"ask(s_aux={bf16})",
        "ask(s_aux=Tensor(9, 4, code=4), sinks=Tensor(9, 4, code=4))",
        "ask(s_aux=Tensor(9, 4, code=4, strides=[2]))",
        "ask(s_aux=Tensor(9, 4))",
        "ask(s_aux=Tensor(9, 4, bits=32, code=2))",
        "ask(s_aux=Tensor(9, 8, code=4))",
        "ask(s_aux=Tensor(9, 4, code=4, negated=True))",
        "ask(s_aux=Tensor(0, 4, code=4))",
        "ask()",
        "converted",
    )
    assert found == ["1", "launched", "launched", "[9, 10]", "launched", *["None"] * 9,
                     "[9, 10, 11]"]  # fmt: skip


def test_sinks_in_fp32_are_read_where_they_are(tree: Tree) -> None:
    found = answers(
        tree,
        "remember(cached() | {'s_aux': Tensor(9, 4, bits=32, code=2)}, sinks=7 << 20)",
        "remember(cached() | {'s_aux': Tensor(9, 4, bits=32, code=2)}, sinks=9 << 20)",
        "ask(sinks=Tensor(10, 4, bits=32, code=2))",
        "converted",
        "remember(cached() | {'s_aux': Tensor(9, 4, bits=32, code=2, strides=[2])}, sinks=7 << 20)",
        "ask(sinks=Tensor(10, 4, bits=32, code=2, strides=[2]))",
        "converted",
    )
    assert found == ["0", "1", "launched", "[]", "2", "launched", "[10]"]


# A call with a latent cache: in two tensors each, and as the wholes that flash_mla_with_kvcache
# gets, with where their parts are.
LATENT = """
def latent(batch=3, pages=5, columns=4, start=1, heads=4, apart=False):
    call = cached(batch, pages, columns, heads=heads, start=start + 3)
    cuts = dict(strides=[16 * 576, 576, 576, 1])
    k = Tensor(start, pages, 16, 1, 64, strides=None if apart else cuts["strides"])
    k.at += 0 if apart else 1024
    v = Tensor(start + 99 * apart, pages, 16, 1, 512, strides=None if apart else cuts["strides"])
    q, qv = (Tensor(start + 1, batch, 1, heads, d, strides=[heads * 576, heads * 576, 576, 1])
             for d in (64, 512))
    q.at += 1024
    return call | {"q": q, "k": k, "v": v, "qv": qv}
def whole(batch=3, pages=5, columns=4, start=1, heads=4, d_v=512, d=576):
    return latent(batch, pages, columns, start, heads) | {
        "q": Tensor(start + 1, batch, 1, heads, d), "k": Tensor(start, pages, 16, 1, d), "v": None,
        "qv": d_v}
def remember_latent(call):
    return remember(call, qv=call["qv"].at)
"""


def latent_answers(tree: Tree, *lines: str) -> list[str]:
    return answers(tree, f"exec({LATENT!r})", *lines)[1:]


def test_latent_caches_in_parts_and_whole(tree: Tree) -> None:
    found = latent_answers(
        tree, "remember_latent(latent(5))", "ask(latent(5, start=50))",
        "ask(latent(7, 90, 31, 50))", "ask(whole(5))", "ask(whole(7, 90, 31, 50))",
        "ask(latent(5), qv=latent(5, start=50)['qv'])",
    )  # fmt: skip
    assert found == ["1", *["launched"] * 5]
    unlike = (
        # Each of few sequences may have splits of its own.
        "ask(latent(4))", "ask(latent(5))",
        "ask(latent(heads=8))", "ask(latent(apart=True))", "ask(latent() | {'qv': None})",
        "ask(latent(), qv=latent(batch=4)['qv'])", "ask(latent(), qv=Tensor(9, 3, 1, 4, 256))",
        "ask(latent(), qv=Tensor(9, 3, 4, 512))", "ask(latent(), qv=Tensor(9, 3, 1, 4, 512))",
        "ask(latent(), qv=Tensor(9, 3, 1, 4, 512, bits=32))", "ask(latent(), qv=object())",
        "ask(latent(), qv=True)", "ask(latent(), refused=(latent()['qv'],))", "ask(cached())",
        "ask(latent(), out=latent()['qv'])", "ask(whole(heads=8))", "ask(whole(d_v=64))",
        "ask(whole(d_v=576))", "ask(whole(d_v=0))", "ask(whole(d_v=-64))", "ask(whole(d=640))",
        "ask(whole(d=64))", "ask(whole(), v=latent()['v'])", "ask(whole(), k=None)",
        "ask(whole(), q=Tensor(9, 3, 1, 4, 576, negated=True))", "ask(whole(), q=3)",
        "ask(whole(), q=Tensor(9, 3, 1, 4, 576, requires_grad=True))",
        "ask(latent(), qv=latent(start=-1)['qv'])",
    )  # fmt: skip
    first, *found = latent_answers(tree, "remember_latent(latent())", *unlike)
    assert first == "1"
    for call, answer in zip(unlike, found, strict=True):
        assert answer == "None", call


def test_latent_caches_apart(tree: Tree) -> None:
    """k and v in memory of their own; a record that has another address of qv is of a copy."""
    found = latent_answers(
        tree, "remember(latent(apart=True), qv=7 << 20)", "remember_latent(latent(apart=True))",
        "ask(latent(start=50, apart=True))", "ask(latent())", "ask(whole())",
        "ask(latent(apart=True), out=Tensor(30, 3, 1, 4, 512))",
    )  # fmt: skip
    assert found == ["0", "1", "launched", "None", "None", "None"]
