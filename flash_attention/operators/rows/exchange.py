"""What the programs that share a row tell each other of it: two numbers of fp32 each, in one word
of global memory, so that the numbers and the news that they are there arrive together.

A word of zeros is one that nobody has published; words are zero before a launch, and after it. No
program needs another one to run: who has asked in vain for long works out the row's numbers alone.
GPUs begin programs in order, so that is for the worst case only (the emulator can make it happen).
"""

# The functions below are Gluon, not Python: the compiler reads their text.
# mypy: ignore-errors

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from ...triton_kit.aggregates import aggregate

block_barrier = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier  # since 3.7


@gluon.constexpr_function
def of_parts(most, warps):
    """Of one number of each part: every warp has all of them, and each lane has others. Two lanes
    with the same one could find different words at its place, and would go different ways."""
    return gl.BlockedLayout([most // 32], [32], [warps], [0])


@gluon.constexpr_function
def of_threads(warps):
    return gl.BlockedLayout([1], [32], [warps], [0])


TWO_ZEROS = gl.constexpr(-(2**63))  # the word of them


@gluon.jit
def word_of(first, second):
    """Never zero, since the second number is not -0.0, which the other sign would make 0."""
    second = gl.where(second == 0.0, 0.0, second)
    low, high = first.to(gl.uint32, bitcast=True), second.to(gl.uint32, bitcast=True)
    return ((high ^ 0x80000000).to(gl.uint64) << 32 | low.to(gl.uint64)).to(gl.int64, bitcast=True)


@gluon.jit
def numbers_of(word):
    low, high = word.to(gl.uint32), (word >> 32).to(gl.uint32) ^ 0x80000000
    return low.to(gl.float32, bitcast=True), high.to(gl.float32, bitcast=True)


@aggregate
class Exchange:
    """The words of one row's `parts`; MOST is a power of two, at least 32 and so many. `left`: how
    many programs need the words no more. A program asks PATIENCE times more than once."""

    words: gl.tensor
    left: gl.tensor
    part: gl.tensor
    parts: gl.tensor
    MOST: gl.constexpr
    PATIENCE: gl.constexpr

    @gluon.jit
    def each(self):
        return gl.arange(0, self.MOST, of_parts(self.MOST, gl.num_warps()))

    @gluon.jit
    def publish(self, first, second):
        """This part's numbers."""
        word = word_of(first, second)
        gl.atomic_xchg(self.words + self.part, word, sem="relaxed", scope="gpu")

    @gluon.jit
    def asked(self):
        """The words of all parts, published or not yet. Beyond the last part of two zeros."""
        inside = self.each() < self.parts
        return gl.load(self.words + self.each(), mask=inside, other=TWO_ZEROS, volatile=True)

    @gluon.jit
    def are_missing(self, word):
        return gl.sum((word != 0).to(gl.int32), 0) < self.MOST

    @gluon.jit
    def gathered(self):
        """(the first numbers of all parts, the second, whether all were there in time)."""
        word = self.asked()
        missing = self.are_missing(word)
        times = 0
        while missing & (times < self.PATIENCE):
            word = self.asked()
            missing = self.are_missing(word)
            times += 1
        # Warps asked at different times. Of a number for each thread, so that all go one way.
        thread = gl.arange(0, 32 * gl.num_warps(), of_threads(gl.num_warps()))
        each = gl.where(thread < 32 * gl.num_warps() + self.parts, missing.to(gl.int32), 0)
        first, second = numbers_of(word)
        return first, second, gl.max(each, 0) == 0

    @gluon.jit
    def awaited(self):
        """The numbers of all parts, of programs that run at the same time."""
        word = self.asked()
        while self.are_missing(word):
            word = self.asked()
        return numbers_of(word)

    @gluon.jit
    def leave(self):
        """How many had left before, to its first thread. All words have been read."""
        thread = gl.arange(0, 32 * gl.num_warps(), of_threads(gl.num_warps()))
        nothing = gl.zeros_like(thread)
        left, one = self.left + nothing, nothing + 1
        return gl.atomic_add(left, one, mask=thread == 0, sem="relaxed", scope="gpu")

    @gluon.jit
    def is_last(self, before):
        """Of each thread: whether it is the first of the last program to leave."""
        thread = gl.arange(0, 32 * gl.num_warps(), of_threads(gl.num_warps()))
        return (thread == 0) & (before + 1 == self.parts)

    @gluon.jit
    def zero_words(self, mask):
        nothing = gl.zeros_like(mask.to(gl.int32))
        for part in range(self.parts):
            at = self.words + part + nothing
            gl.atomic_xchg(at, nothing.to(gl.int64), mask=mask, sem="relaxed", scope="gpu")

    @gluon.jit
    def zero_left(self, mask):
        nothing = gl.zeros_like(mask.to(gl.int32))
        gl.atomic_xchg(self.left + nothing, nothing, mask=mask, sem="relaxed", scope="gpu")

    @gluon.jit
    def leave_zeros(self, before):
        """By the last program to leave."""
        last = self.is_last(before)
        self.zero_words(last)
        self.zero_left(last)


@gluon.jit
def exchange_of(words, rows, parts, MOST: gl.constexpr, PATIENCE: gl.constexpr):
    """This program's, of `words` that begin with those of the first row."""
    row = gl.program_id(0) // parts
    lefts = (words + rows.to(gl.int64) * parts).to(gl.pointer_type(gl.int32), bitcast=True)
    return Exchange(
        words=words + row.to(gl.int64) * parts, left=lefts + row, part=gl.program_id(0) % parts,
        parts=parts, MOST=MOST, PATIENCE=PATIENCE)  # fmt: skip
