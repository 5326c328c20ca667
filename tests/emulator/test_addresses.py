"""Addresses in the state space of the kernel's parameters, and made generic by cvta."""

from __future__ import annotations

import numpy as np
import pytest

from flash_helpers.emulator import OutOfBoundsError

from .support import aligned, run_ptx

# What compilers write: nvcc and Triton up to 3.8 take 64 bits for such an address, 3.9 takes 32.
WIDTHS = {
    64: "mov.b64 %x0, p0;",
    32: "mov.b32 %r0, p0; cvt.u64.u32 %x0, %r0;",
}


@pytest.mark.parametrize("bits", WIDTHS)
def test_an_address_of_a_parameter(bits: int) -> None:
    out = aligned(2, np.uint64)
    generic = f"""{WIDTHS[bits]} cvta.param.u64 %x1, %x0; ld.u64 %x2, [%x1];
    st.global.u64 [%p0], %x2; cvta.to.param.u64 %x3, %x1; ld.param.u64 %x4, [%x3];
    st.global.u64 [%p0+8], %x4;"""
    run_ptx(generic, [out], block=1)
    assert (out == out.ctypes.data).all()
    out[:] = 0
    register = "%x0" if bits == 64 else "%r0"
    run_ptx(f"{WIDTHS[bits]} ld.param.u64 %x1, [{register}]; st.global.u64 [%p0], %x1;", [out],
            block=1)  # fmt: skip
    assert out[0] == out.ctypes.data


@pytest.mark.parametrize("access", ["ld.u64 %x1, [%x0];", "ld.global.u64 %x1, [%x0];"])
def test_it_is_not_generic_by_itself(access: str) -> None:
    out = aligned(1, np.uint64)
    with pytest.raises(OutOfBoundsError, match="in no registered memory"):
        run_ptx(WIDTHS[64] + access, [out], block=1)
