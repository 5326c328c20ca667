"""Times calls of few queries and mixed batches on this machine's GPU, cold L2, and prints rows for
docs/results: with Hopper's kernels of tiles with rows of all heads that share a KV head, with those
of one head, and with the Ampere family's.

    python -m tests.gpu.packing_times [WORD ...]

Each figure is the median of 11 calls in microseconds; WORDs choose rows. `predicted` is what
docs/kernels/06-serving.md says of the first. The last sequence is compared with fp64."""

from __future__ import annotations

import random
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

import flash_attention
from flash_helpers.check.serving import ServeRule, attend_sequence
from tests.serving.packing import rows_of
from tests.serving.problems import ints

WAYS, ROUNDS, D = ("all heads", "one head", "the other family"), 11, 128
CAUSAL = ServeRule(causal=True)


@dataclass(frozen=True)
class Row:
    name: str
    queries: list[int]
    keys: list[int]
    heads: tuple[int, int]
    page: int
    predicted: int | None


def rows() -> list[Row]:
    ragged = random.Random(4)
    lengths = [int(min(32768, max(128, ragged.lognormvariate(8.0, 1.0)))) for _ in range(63)]
    decodes, chunk, ones = lengths, [10240], [1] * 63
    found = [
        Row(f"16 x {n}, q {q}, page {page}", [q] * 16, [n] * 16, (64, 8), page, us)
        for n, us in ((1024, 23), (4096, 70), (16384, 257)) for q in (1, 4) for page in (256, 16)
    ]  # fmt: skip
    found += [
        Row("64 x 4096, q 4", [4] * 64, [4096] * 64, (32, 8), 16, 260),
        Row("64 ragged, q 4", [4] * 64, [*decodes, 4096], (32, 8), 16, 440),
        Row("16 x 16384, q 32", [32] * 16, [16384] * 16, (64, 8), 16, 480),
        Row("a chunk of 2048 behind 8192", [2048], chunk, (32, 8), 16, 540),
        Row("63 ragged decodes", ones, decodes, (32, 8), 16, 440),
        Row("the chunk, then the decodes", [2048, *ones], chunk + decodes, (32, 8), 16, 840),
        Row("the decodes, then the chunk", [*ones, 2048], decodes + chunk, (32, 8), 16, 870),
        Row("512 x 64, whole prompts", [64] * 512, [64] * 512, (32, 8), 16, 250),
    ]
    return found


class Tensors:
    """Of a row: packed queries, keys in pages in any order."""

    def __init__(self, row: Row) -> None:
        pages = [-(-n // row.page) for n in row.keys]
        kv = (sum(pages), row.page, row.heads[1], D)
        self.k, self.v = (
            torch.randn(kv, device="cuda", dtype=torch.bfloat16) for _ in range(2)
        )  # fmt: skip
        self.q = torch.randn(
            sum(row.queries), row.heads[0], D, device="cuda", dtype=torch.bfloat16
        )  # fmt: skip
        self.starts = ints([0, *torch.tensor(row.queries).cumsum(0).tolist()], "cuda")
        self.lengths = ints(row.keys, "cuda")
        order = torch.split(torch.randperm(sum(pages)).int(), pages)
        self.table = torch.nn.utils.rnn.pad_sequence(list(order), batch_first=True).cuda()
        self.row, self.last = row, order[-1].long().cuda()

    def call(self) -> torch.Tensor:
        o = flash_attention.flash_attn_varlen_func(
            self.q, self.k, self.v, self.starts, None, seqused_k=self.lengths,
            block_table=self.table, causal=True,
        )  # fmt: skip
        assert isinstance(o, torch.Tensor)
        return o

    def error(self, o: torch.Tensor) -> float:
        """The largest relative error of a row of the last sequence, in eps of the type."""
        n, n_keys = min(self.row.queries[-1], 64), self.row.keys[-1]
        k, v = (x[self.last].flatten(0, 1)[:n_keys] for x in (self.k, self.v))
        expected, _ = attend_sequence(self.q[-n:], k, v, CAUSAL)
        difference = (o[-n:].double() - expected).norm(dim=-1) / expected.norm(dim=-1)
        return float(difference.max() / torch.finfo(o.dtype).eps)


def microseconds(call: Callable[[], object], cold: torch.Tensor) -> float:
    """The median of ROUNDS calls, each behind a write of `cold`, which L2 then holds."""
    times = []
    for _ in range(ROUNDS + 2):
        cold.zero_()
        events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]  # type: ignore[no-untyped-call]
        begin, end = events
        torch.cuda._sleep(4_000_000)  # type: ignore[no-untyped-call]  # the host is ahead
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(1000 * begin.elapsed_time(end))
    return float(statistics.median(times[2:]))


def main(words: Sequence[str]) -> None:
    print(torch.cuda.get_device_name())
    print(f"| row | {' | '.join(WAYS)} | predicted | TB/s of the first | error, eps |")
    print("| --- " * (len(WAYS) + 4) + "|")
    cold = torch.empty(2**28, dtype=torch.uint8, device="cuda")
    for row in rows():
        if words and not any(word in row.name for word in words):
            continue
        tensors, figures, errors = Tensors(row), [], []
        for way in WAYS:
            with rows_of(way):
                figures.append(microseconds(tensors.call, cold))
                errors.append(tensors.error(tensors.call()))
        rate = sum(row.keys) * row.heads[1] * 2 * D * 2 / figures[0] / 1e6
        cells = [row.name, *(f"{us:.1f}" for us in figures), str(row.predicted), f"{rate:.2f}"]
        print(f"| {' | '.join(cells)} | {max(errors):.2f} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
