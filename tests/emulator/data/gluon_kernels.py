# mypy: ignore-errors
"""A warp-specialised matrix product in Gluon (not typed Python, hence no mypy).

One warp loads through tensor maps, eight multiply; mbarriers pass the ring's buffers between them.
See make_triton_ptx.py.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from flash_attention.gluon.tma import async_load, async_store


@gluon.jit
def _load(a, b, a_ring, b_ring, full, empty, K, STAGES: gl.constexpr):
    row = gl.program_id(0) * a.block_shape[0]
    column = gl.program_id(1) * b.block_shape[1]
    for i in range(gl.cdiv(K, a.block_shape[1])):
        stage = i % STAGES
        mbarrier.wait(empty.index(stage), ((i // STAGES) & 1) ^ 1)
        mbarrier.expect(full.index(stage), a.block_type.nbytes + b.block_type.nbytes)
        k = i * a.block_shape[1]
        async_load(a, [row, k], full.index(stage), a_ring.index(stage))
        async_load(b, [k, column], full.index(stage), b_ring.index(stage))


@gluon.jit
def _multiply(c, a_ring, b_ring, c_tile, full, empty, K, BLOCK_K: gl.constexpr,
              STAGES: gl.constexpr):  # fmt: skip
    BM: gl.constexpr = c.block_shape[0]
    BN: gl.constexpr = c.block_shape[1]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, BN, 16])
    total = gl.zeros([BM, BN], gl.float32, layout)
    for i in range(gl.cdiv(K, BLOCK_K)):
        stage = i % STAGES
        mbarrier.wait(full.index(stage), (i // STAGES) & 1)
        total = warpgroup_mma(a_ring.index(stage), b_ring.index(stage), total, is_async=True)
        total = warpgroup_mma_wait(0, deps=[total])
        mbarrier.arrive(empty.index(stage), count=1)
    c_tile.store(total.to(c_tile.dtype))
    fence_async_shared()
    async_store(c, [gl.program_id(0) * BM, gl.program_id(1) * BN], c_tile)
    tma.store_wait(0)


@gluon.jit
def gluon_matmul(a, b, c, K, STAGES: gl.constexpr):
    """c (M x N) = a (M x K) b (K x N), of any sizes: what lies outside is zero and not stored."""
    a_ring = gl.allocate_shared_memory(a.dtype, [STAGES] + a.block_shape, a.layout)  # noqa: RUF005
    b_ring = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_shape, b.layout)  # noqa: RUF005
    c_tile = gl.allocate_shared_memory(c.dtype, c.block_shape, c.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=1)
    fence_async_shared()  # the copies signal the barriers
    BLOCK_K: gl.constexpr = a.block_shape[1]
    gl.warp_specialize(
        [
            (_multiply, (c, a_ring, b_ring, c_tile, full, empty, K, BLOCK_K, STAGES)),
            (_load, (a, b, a_ring, b_ring, full, empty, K, STAGES)),
        ],
        [1],
        [24],
    )
