"""Micro-kernels of fp32 sums in memory: by the copy engine, four at a time, and one by one."""

from __future__ import annotations

import numpy as np

from ...conformance.micro_kernel import Case
from ...conformance.values import random_f32
from .copy_kernels import PREAMBLE, THREADS
from .hopper_kernel import HopperKernels, hopper_entry

BULK = "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32"
VECTOR = "red.global.add.v4.f32"
SCALAR = "red.global.add.f32"
SHARED = "red.shared.add.f32"
SUMS = 4 * THREADS
# Against each other, and sums that cancel, overflow, and are or become subnormal.
_SPECIAL = np.array(
    [0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 3e38, -3e38, 1e-45, -1e-45, 1e-38, -1e-38, 1.2e-38],
    np.float32,
)


def reduction_kernels() -> HopperKernels:
    """Every thread's four sums of two inputs: one stored, one added."""
    left, right = (values.ravel() for values in np.meshgrid(_SPECIAL, _SPECIAL))
    rest = SUMS - left.size
    inputs = np.concatenate([np.append(special, random_f32(seed, rest, 40)).astype(np.float32)
                       for seed, special in ((90, left), (91, right))])  # fmt: skip
    cases = [
        Case(key, form, f"{form} of {SUMS} sums", "f4", SUMS, any_nan=True)
        for key, form in (
            ("bulk reduction", BULK),
            ("vector reduction", VECTOR),
            ("scalar reduction", SCALAR),
            ("shared sum", SHARED),
        )
    ]
    kernels = HopperKernels("reductions", "", inputs, cases, 1, THREADS, preamble=PREAMBLE)
    bulk, vector, scalar, shared = (kernels.offsets[case.key] for case in cases)
    one_by_one = "\n".join(
        f"{SCALAR} [to+{scalar + 4 * i}], {right}; {SHARED} [place+{4 * i}], {left};"
        for i, (left, right) in enumerate(zip("efgh", "abcd", strict=True))
    )
    body = f"""
{{ .reg .b64 from, to, at; .reg .b32 a, b, c, d, e, f, g, h, place;
mad.wide.u32 from, %tid32, 16, %in; mad.wide.u32 to, %tid32, 16, %out;
ld.global.v4.b32 {{e, f, g, h}}, [from];
st.global.v4.b32 [to+{bulk}], {{e, f, g, h}}; st.global.v4.b32 [to+{vector}], {{e, f, g, h}};
st.global.v4.b32 [to+{scalar}], {{e, f, g, h}};
ld.global.v4.b32 {{a, b, c, d}}, [from+{4 * SUMS}];
mad.lo.u32 place, %tid32, 16, %base; st.shared.v4.b32 [place], {{a, b, c, d}};
fence.proxy.async; bar.sync 0;
{VECTOR} [to+{vector}], {{a, b, c, d}};
@!%first bra ADDED;
add.u64 at, %out, {bulk};
{BULK} [at], [%base], {4 * SUMS};
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
ADDED: bar.sync 0;
{one_by_one}
ld.shared.v4.b32 {{a, b, c, d}}, [place]; st.global.v4.b32 [to+{shared}], {{a, b, c, d}}; }}
"""
    kernels.ptx = hopper_entry(kernels.entry, PREAMBLE + body)
    return kernels
