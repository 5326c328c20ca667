"""What the device functions hand to each other: rings, sizes, the kind of the kernel, a tile."""

# The methods below are Gluon, not Python: the compiler reads their text.
# mypy: ignore-errors

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from ..triton_kit.aggregates import aggregate
from .tma import async_load


@gluon.jit
def barriers(COUNT: gl.constexpr):
    return gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())


@aggregate
class Ring:
    """`count` places of shared memory, filled by the producer once a turn, and their barriers."""

    memory: gl.shared_memory_descriptor
    full: gl.shared_memory_descriptor
    empty: gl.shared_memory_descriptor
    count: gl.constexpr

    @gluon.jit
    def start(self, place, READERS: gl.constexpr):
        mbarrier.init(self.full.index(place), count=1)
        mbarrier.init(self.empty.index(place), count=READERS)

    @gluon.jit
    def fill(self, desc, coordinates, place, turn):
        """Loads a box as soon as the place is free."""
        mbarrier.wait(self.empty.index(place), (turn & 1) ^ 1)
        mbarrier.expect(self.full.index(place), desc.block_type.nbytes)
        async_load(desc, coordinates, self.full.index(place), self.memory.index(place))

    @gluon.jit
    def wait(self, place, turn):
        """Until the place is full."""
        mbarrier.wait(self.full.index(place), turn & 1)

    @gluon.jit
    def release(self, place):
        """This group needs the place no longer."""
        mbarrier.arrive(self.empty.index(place), count=1)

    @gluon.jit
    def matrix(self, place):
        """Rows and columns of what the place holds."""
        return self.memory.index(place).reshape([self.memory.shape[3], self.memory.shape[4]])


@aggregate
class Sizes:
    """The sizes of the call; `section` heads run abreast, `scale` is times log2(e)."""

    seqlen_q: gl.tensor
    seqlen_k: gl.tensor
    n_heads: gl.tensor
    kv_group: gl.tensor
    n_tiles: gl.tensor
    n_heads_all: gl.tensor
    section: gl.tensor
    scale: gl.tensor


@aggregate
class Kind:
    """Which kernel this is: BLOCK_M rows a tile, shared by GROUPS groups."""

    BLOCK_M: gl.constexpr
    GROUPS: gl.constexpr
    CAUSAL: gl.constexpr
    PING_PONG: gl.constexpr
    FENCE: gl.constexpr
    OPTIMISTIC: gl.constexpr


@aggregate
class Tile:
    """A group's rows of one tile, from `row` on. Its K and V are blocks `step` to `step` +
    `n_blocks` - 1 of the rings; the last `n_clear` need no mask."""

    q: gl.shared_memory_descriptor
    k: Ring
    v: Ring
    step: gl.tensor
    row: gl.tensor
    n_blocks: gl.tensor
    n_clear: gl.tensor
    sizes: Sizes
    kind: Kind
    GROUP: gl.constexpr

    @gluon.jit
    def key(self, i):
        """The first key of the i-th block: from the last to the first."""
        return (self.n_blocks - 1 - i) * self.k.memory.shape[3]
