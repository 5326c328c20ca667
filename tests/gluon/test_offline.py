"""What the compiler makes of every Gluon configuration, without a GPU: nothing spills, no matrix
product waits for another, shared memory suffices, and in WS PP the exponentials run beside a
product. test_emulator (tests/emulator/sm90) runs the same code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

pytest.importorskip("triton")

from flash_attention.gluon import GluonForwardConfig, configs
from flash_attention.gluon.config import FENCES, MAX_SHARED_BYTES, default_config
from flash_attention.gluon.op import GluonAttention
from flash_attention.triton_kit.offline import Compiled
from flash_attention.triton_kit.versions import minor_of, require_triton
from tests.triton.overlap import listing_of, overlaps


@dataclass(frozen=True)
class Case:
    config: GluonForwardConfig
    ping_pong: bool
    dtype: str
    d_head: int
    causal: bool

    def __str__(self) -> str:
        words = ["PP" if self.ping_pong else "WS", self.dtype, f"d{self.d_head}"]
        words += ["causal" if self.causal else "full", *map(str, self.config.as_dict().values())]
        return "-".join(words)

    def compiled(self) -> Compiled:
        op = GluonAttention(self.ping_pong)
        return op.compile(self.config, self.dtype, self.d_head, self.causal)


def all_cases() -> Iterator[Case]:
    """PERSISTENT is a matter of the grid: the code is the same."""
    for d_head in (64, 128):
        for ping_pong in (False, True):
            for config in configs(ping_pong, d_head):
                if config.PERSISTENT:
                    continue
                for dtype in ("fp16", "bf16"):
                    for causal in (False, True):
                        yield Case(config, ping_pong, dtype, d_head, causal)


# One of each kind: the tile that is used by default, and three groups; the rest is slow.
FEW = [
    Case(default_config(False, 128), False, "fp16", 128, False),
    Case(default_config(True, 128), True, "bf16", 128, True),
    Case(
        replace(
            default_config(True, 128), BLOCK_M=192, BLOCK_N=64, NUM_MMA_WARPS=12, NUM_MMA_GROUPS=3
        ),
        True, "fp16", 128, False,
    ),
]  # fmt: skip


def check(case: Case) -> None:
    compiled = case.compiled()
    assert compiled.spill_bytes == compiled.stack_bytes == 0
    assert not compiled.warnings  # C7510 to C7517: matrix products wait for each other
    assert compiled.shared_bytes <= min(MAX_SHARED_BYTES, case.config.shared_bytes(case.d_head))
    assert compiled.n_warps == case.config.NUM_MMA_WARPS + 4  # the producer's is padded
    assert compiled.scratch_bytes == 0
    if case.ping_pong:
        _check_overlap(case, compiled)


def _check_overlap(case: Case, compiled: Compiled) -> None:
    found = overlaps(listing_of(compiled.cubin))
    loops = 2 if case.causal else 1  # masked blocks, and the others
    assert len(found) == loops * case.config.NUM_MMA_GROUPS
    per_thread = case.config.BLOCK_N // 2  # 64 rows, 128 threads
    assert all(o.beside >= per_thread for o in found), found
    # Of 3.9's code ptxas moves what follows the weights, the factors of a thread's two rows.
    late = case.config.OVERLAP_FENCE == "warp" and minor_of(require_triton()) >= (3, 9)
    assert all(o.behind <= (2 if late else 0) for o in found), found


@pytest.mark.parametrize("case", FEW, ids=str)
def test_some_configurations(case: Case) -> None:
    check(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", list(all_cases()), ids=str)
def test_every_configuration(case: Case) -> None:
    check(case)


def test_without_a_fence_nothing_overlaps() -> None:
    """The planted defect: what ptxas does when nothing holds the exponentials back."""
    config = replace(default_config(True, 128), OVERLAP_FENCE="none", OPTIMISTIC=False)
    compiled = Case(config, True, "fp16", 128, False).compiled()
    found = overlaps(listing_of(compiled.cubin))
    assert len(found) == 2
    assert all(o.share < 0.2 for o in found), found


@pytest.mark.slow
@pytest.mark.parametrize("fence", FENCES[1:])
def test_each_fence_holds(fence: str) -> None:
    config = replace(default_config(True, 128), OVERLAP_FENCE=fence, OPTIMISTIC=False)
    check(Case(config, True, "fp16", 128, True))


@pytest.mark.slow
def test_a_spilling_configuration_is_seen() -> None:
    """Three groups of 64 x 128 scores do not fit into 160 registers beside those of the block
    before: the space leaves it out, and this check would notice."""
    config = replace(
        default_config(True, 64), BLOCK_M=192, NUM_BUFFERS=2, NUM_MMA_WARPS=12, NUM_MMA_GROUPS=3,
        OPTIMISTIC=False,
    )  # fmt: skip
    assert Case(config, True, "fp16", 64, False).compiled().spill_bytes


def test_a_bad_configuration_is_refused_before_the_compiler_sees_it() -> None:
    config = replace(default_config(True, 128), NUM_BUFFERS=5)
    with pytest.raises(ValueError, match=r"394240 bytes of shared memory: at most 232448"):
        Case(config, True, "fp16", 128, False).compiled()
    with pytest.raises(ValueError, match="dtype fp8: allowed are fp16 and bf16"):
        Case(default_config(True, 128), True, "fp8", 128, False).compiled()
