"""What the programs that share a row tell each other of it: two numbers of fp32 each, in words of
global memory that carry the turn they are of, so that a number and the news that it is there arrive
together.

Who waits needs the others to run, so all programs must be on the GPU at a time: the launch is a
cooperative one. The words are zero before a launch, and after it.
"""

# The functions below are Gluon, not Python: the compiler reads their text.
# mypy: ignore-errors

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from ...triton_kit.aggregates import aggregate

block_barrier = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier  # since 3.7

# Turns whose words are kept. A program that waits for turn t has published t + LAG, so who
# publishes t + LAG + 1 knows that every other has published t, and has read t - LAG - 1 before: the
# words of turn t are free at t + 2 * LAG + 2.
ROUNDS = gl.constexpr(8)


@gluon.constexpr_function
def of_parts(most, warps):
    """Of one number of each part: every warp has all of them, and each lane has others. Two lanes
    with the same one could find different words at its place, and would go different ways."""
    return gl.BlockedLayout([most // 32], [32], [warps], [0])


@gluon.jit
def word_of(value, tag):
    low = value.to(gl.uint32, bitcast=True).to(gl.uint64)
    return (gl.to_tensor(tag).to(gl.uint64) << 32 | low).to(gl.int64, bitcast=True)


@gluon.jit
def number_of(word):
    return word.to(gl.uint32).to(gl.float32, bitcast=True)


@gluon.jit
def most_and_count(a, n, b, m):
    return gl.maximum(a, b), n + m


@gluon.jit
def sum_and_count(a, n, b, m):
    return a + b, n + m


@aggregate
class Exchange:
    """The words of one group of programs, which are `parts`; MOST is a power of two, at least 32
    and so many. `left`: how many of them need the words no more."""

    words: gl.tensor
    left: gl.tensor
    part: gl.tensor
    parts: gl.tensor
    MOST: gl.constexpr

    @gluon.jit
    def place(self, turn, number):
        return self.words + (turn % ROUNDS * 2 + number) * self.parts

    @gluon.jit
    def each(self):
        return gl.arange(0, self.MOST, of_parts(self.MOST, gl.num_warps()))

    @gluon.jit
    def publish(self, turn, first, second):
        """This part's numbers."""
        for number in gl.static_range(2):
            word = word_of(second if number else first, turn + 1)
            at = self.place(turn, number) + self.part
            gl.atomic_xchg(at, word, sem="relaxed", scope="gpu")

    @gluon.jit
    def asked(self, turn):
        """The words of all parts, whether they are of that turn or not yet: asked for long before
        they are needed, they cost nothing."""
        inside = self.each() < self.parts
        at = self.place(turn, 0) + self.each()
        first = gl.load(at, mask=inside, other=0, volatile=True)
        return first, gl.load(at + self.parts, mask=inside, other=0, volatile=True)

    @gluon.jit
    def known(self, turn, first, second, HIGHEST: gl.constexpr):
        """(the highest first number, or the sum of the second; all first numbers, all second; how
        many words are of that turn). Beyond the last part there is what changes neither."""
        outside = self.each() >= self.parts
        known = (outside | ((first >> 32 == turn + 1) & (second >> 32 == turn + 1))).to(gl.int32)
        one, other = number_of(first), number_of(second)
        if HIGHEST:
            one = gl.where(outside, -float("inf"), one)
            result, count = gl.reduce((one, known), 0, most_and_count)
        else:
            one = gl.where(outside, 0.0, one)
            result, count = gl.reduce((other, known), 0, sum_and_count)
        return result, one, other, count

    @gluon.jit
    def gathered(self, turn, first, second, HIGHEST: gl.constexpr):
        """(the highest first number, or the sum of the second; all first numbers, all second) of
        words that were asked for; asks again until they are there."""
        result, one, other, count = self.known(turn, first, second, HIGHEST)
        while count < self.MOST:
            first, second = self.asked(turn)
            result, one, other, count = self.known(turn, first, second, HIGHEST)
        return result, one, other

    @gluon.jit
    def leave(self):
        """Once this program has read all that it needs; the last one leaves zeros."""
        block_barrier()  # every warp has
        if gl.atomic_add(self.left, 1, sem="acq_rel", scope="gpu") + 1 == self.parts:
            inside = self.each() < self.parts
            nothing = gl.zeros_like(self.each()).to(gl.int64)
            for i in gl.static_range(2 * ROUNDS):
                gl.store(self.words + i * self.parts + self.each(), nothing, mask=inside)
            gl.atomic_xchg(self.left, 0, sem="relaxed", scope="gpu")


@gluon.jit
def exchange_of(words, parts, MOST: gl.constexpr):
    """This program's, of `words` that begin with those of the first group."""
    group, groups = gl.program_id(0) // parts, gl.num_programs(0) // parts
    lefts = (words + groups * ROUNDS * 2 * parts).to(gl.pointer_type(gl.int32), bitcast=True)
    return Exchange(
        words=words + group * ROUNDS * 2 * parts, left=lefts + group,
        part=gl.program_id(0) % parts, parts=parts, MOST=MOST)  # fmt: skip
