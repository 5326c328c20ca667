"""The gradients of LayerNorm and RMSNorm of long rows: each program has one part of its rows, whose
next ones it loads ahead, and keeps that part of the weight's and the bias's gradients in registers.
Each number is read once; no atomic sums."""

# The functions below are Gluon, not Python: the compiler reads their text.
# mypy: ignore-errors

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from ..rows.exchange import Exchange, block_barrier
from ..rows.part import Part, commit_group, each_sum, shape_of, wait_group

NUMBERS = ["rows", "columns", "grad_row", "x_row", "added_row", "dx_row", "parts"]


@gluon.jit
def sums(a, b, c, d):
    return a + c, b + d


@gluon.jit
def places_for(x, BLOCK: gl.constexpr, SLOTS: gl.constexpr):
    """Room for so many rows' parts of BLOCK elements."""
    VECTOR: gl.constexpr = 128 // x.dtype.element_ty.primitive_bitwidth
    one: gl.constexpr = shape_of(BLOCK, VECTOR, gl.num_warps(), 1)
    shape: gl.constexpr = [SLOTS, one[1], one[2], one[3]]
    plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [2, 1, 0])
    return gl.allocate_shared_memory(x.dtype.element_ty, shape, plain)


@gluon.jit
def part_in(places, x, columns, part, FULL: gl.constexpr, BLOCK: gl.constexpr):
    VECTOR: gl.constexpr = 128 // x.dtype.element_ty.primitive_bitwidth
    return Part(
        places=places, x=x, columns=columns, part=part, FULL=FULL, BLOCK=BLOCK, CHUNKS=1,
        VECTOR=VECTOR)  # fmt: skip


@gluon.jit
def normalised(part, place, m, r, LAYER: gl.constexpr):
    v = part.kept(place).to(gl.float32)
    return (v - m) * r if LAYER else v * r


@gluon.jit
def weighted(part, place, w, WEIGHT: gl.constexpr):
    """The gradient of the normalised row."""
    dy = part.kept(place).to(gl.float32)
    return dy * w.to(gl.float32) if WEIGHT else dy


@gluon.jit
def statistics_of(mean, rstd, row, rows, LAYER: gl.constexpr):
    r = gl.load(rstd + row, mask=row < rows, other=0.0)
    m = gl.load(mean + row, mask=row < rows, other=0.0) if LAYER else r
    return m, r


@gluon.jit
def fetch(grads, part, grad, x, grad_row, x_row, row, rows, place):
    grads.fetch_row(grad + row.to(gl.int64) * grad_row, row < rows, place)
    part.fetch_row(x + row.to(gl.int64) * x_row, row < rows, place)
    commit_group()


@gluon.jit
def exchange_for(words, row, rows, group, index, parts, MOST: gl.constexpr):
    """Of a row; the count is the group's."""
    lefts = (words + rows.to(gl.int64) * parts).to(gl.pointer_type(gl.int32), bitcast=True)
    return Exchange(
        words=words + row.to(gl.int64) * parts, left=lefts + group, part=index, parts=parts,
        MOST=MOST, PATIENCE=0)  # fmt: skip


@gluon.jit
def slope(grads, part, place, w, m, r, exchange, LAYER: gl.constexpr, WEIGHT: gl.constexpr):
    """The gradient of a row's part, of which all programs have published their sums."""
    each_g, each_gh = exchange.awaited()
    length = part.columns.to(gl.float32)
    mean_gh = gl.sum(each_gh, 0) / length
    y = weighted(grads, place, w, WEIGHT) - normalised(part, place, m, r, LAYER) * mean_gh
    if LAYER:
        y -= gl.sum(each_g, 0) / length
    return y * r


@gluon.jit
def leave(
    words, rows, turns, group, groups, index, parts, LAG: gl.constexpr, MOST: gl.constexpr
):  # fmt: skip
    """Of the group's last rows, whose words are not zero yet."""
    block_barrier()  # every warp has read all words
    exchange = exchange_for(words, group, rows, group, index, parts, MOST)
    mask = exchange.is_last(exchange.leave())
    for back in gl.static_range(1, LAG + 2):
        past = group + gl.maximum(turns - back, 0) * groups
        exchange_for(words, past, rows, group, index, parts, MOST).zero_words(mask)
    exchange.zero_left(mask)


@gluon.jit(do_not_specialize=NUMBERS)
def backward(
    grad, x, added, weight, mean, rstd, dx, dw, db, words,
    rows, columns, grad_row, x_row, added_row, dx_row, parts,
    LAYER: gl.constexpr, ADDED: gl.constexpr, WEIGHT: gl.constexpr, BIAS: gl.constexpr,
    FULL: gl.constexpr, ALIGN: gl.constexpr, BLOCK: gl.constexpr, SLOTS: gl.constexpr,
    MOST: gl.constexpr, LAG: gl.constexpr,
):  # fmt: skip
    """As gradients.py's `rows_whole`; `words`: a word of each part of each row (rows/exchange.py),
    then a count of each group of programs. A row is written LAG turns after its parts were summed
    up. Programs wait for each other, so all must run at a time: the launch is a cooperative one."""
    columns, grad_row, x_row = columns * ALIGN, grad_row * ALIGN, x_row * ALIGN
    added_row, dx_row = added_row * ALIGN, dx_row * ALIGN
    group, groups = gl.program_id(0) // parts, gl.num_programs(0) // parts
    index = gl.program_id(0) % parts
    grads = part_in(places_for(grad, BLOCK, SLOTS), grad, columns, index, FULL, BLOCK)
    part = part_in(places_for(x, BLOCK, SLOTS), x, columns, index, FULL, BLOCK)
    for slot in gl.static_range(SLOTS):
        fetch(grads, part, grad, x, grad_row, x_row, group + slot * groups, rows, slot)
    w = weight
    if WEIGHT:
        w = part.read(weight, index, 0)
    part_w = gl.zeros_like(part.column(index, 0)).to(gl.float32)
    part_b = part_w
    turns = gl.cdiv(rows - group, groups)
    m, r = statistics_of(mean, rstd, group, rows, LAYER)
    past_m, past_r = statistics_of(mean, rstd, group, rows, LAYER)
    for turn in range(turns + LAG):
        row, past = group + turn * groups, group + (turn - LAG) * groups
        next_m, next_r = statistics_of(mean, rstd, row + groups, rows, LAYER)
        if turn < turns:
            wait_group(SLOTS - 1 - LAG)
            place = turn % SLOTS
            hat, g = normalised(part, place, m, r, LAYER), weighted(grads, place, w, WEIGHT)
            sum_g, sum_gh = gl.reduce((each_sum(g), each_sum(g * hat)), 0, sums)
            exchange_for(words, row, rows, group, index, parts, MOST).publish(sum_g, sum_gh)
            if WEIGHT:
                part_w += grads.kept(place).to(gl.float32) * hat
            if BIAS:
                part_b += grads.kept(place).to(gl.float32)
        m, r = next_m, next_r
        if turn >= LAG:
            next_m, next_r = statistics_of(mean, rstd, past + groups, rows, LAYER)
            place = (turn - LAG) % SLOTS
            exchange = exchange_for(words, past, rows, group, index, parts, MOST)
            y = slope(grads, part, place, w, past_m, past_r, exchange, LAYER, WEIGHT)
            if ADDED:
                y += part.read(added + past.to(gl.int64) * added_row, index, 0).to(gl.float32)
            part.write(dx + past.to(gl.int64) * dx_row, 0, y)
            fetch(grads, part, grad, x, grad_row, x_row, past + SLOTS * groups, rows, place)
            past_m, past_r = next_m, next_r
            if turn > 2 * LAG:  # who published the past row had read the words of that before
                at = words + (past - (LAG + 1) * groups).to(gl.int64) * parts + index
                gl.atomic_xchg(at, gl.to_tensor(0).to(gl.int64), sem="relaxed", scope="gpu")
    wait_group(0)  # loads of nothing
    if WEIGHT:
        part.write(dw + group.to(gl.int64) * columns, 0, part_w)
    if BIAS:
        part.write(db + group.to(gl.int64) * columns, 0, part_b)
    leave(words, rows, turns, group, groups, index, parts, LAG, MOST)
