"""A load or store with a cache policy does what it does without one; the policy is what a GPU's
createpolicy returns."""

from __future__ import annotations

import numpy as np
import pytest

from flash_helpers.emulator import UnsupportedPtxError

from .support import aligned, run_ptx

POLICIES = {"evict_first": 0x12F0000000000000, "evict_last": 0x14F0000000000000}
HINTED = """
createpolicy.fractional.L2::{kind}.b64 %x9, 1.0;
mad.wide.u32 %x0, %t, 8, %p0;
mad.wide.u32 %x1, %t, 16, %p1;
ld.global.L1::{kind}.L2::cache_hint.v2.b32 {{%r0, %r1}}, [%x0+0], %x9;
ld.global.L1::{kind}.L2::cache_hint.b32 %r1, [%x0+4], %x9;
st.global.L2::cache_hint.v2.b32 [%x1], {{%r0, %r1}}, %x9;
st.global.b64 [%x1+8], %x9;
"""


@pytest.mark.parametrize("kind", POLICIES)
def test_hinted_accesses(kind: str) -> None:
    x, out = aligned((32, 2), np.uint32), aligned((32, 4), np.uint32)
    x[:] = np.arange(64).reshape(32, 2)
    run_ptx(HINTED.format(kind=kind), [x, out])
    np.testing.assert_array_equal(out[:, :2], x)
    assert set(out[:, 2:].copy().view(np.uint64).ravel().tolist()) == {POLICIES[kind]}


@pytest.mark.parametrize(("old", "new"), [("1.0", "0.5"), ("fractional", "range")])
def test_other_policies_are_refused(old: str, new: str) -> None:
    x, out = aligned((32, 2), np.uint32), aligned((32, 4), np.uint32)
    with pytest.raises(UnsupportedPtxError, match="createpolicy"):
        run_ptx(HINTED.format(kind="evict_last").replace(old, new), [x, out])
