"""Times MLA decode on this machine's GPU, cold L2, and prints rows for docs/results:

    python -m tests.gpu.mla_times

Each row has the median of 21 calls, beside what docs/kernels/06-serving.md predicts. The last
result is compared with fp32 in its last sequence."""

from __future__ import annotations

import statistics

import torch

import flash_attention
from tests.serving.latent import VALUE, D
from tests.serving.problems import ints

PAGE, ROUNDS = 64, 21
# Heads, sequences, keys of each, and the microseconds that were predicted.
ROWS = (
    (16, 1, 8192, 18), (16, 64, 4096, 75), (16, 128, 8192, 281), (64, 64, 4096, 80),
    (128, 1, 8192, 27), (128, 64, 4096, 123), (128, 128, 8192, 462),
)  # fmt: skip


def error(o: torch.Tensor, q: torch.Tensor, pages: torch.Tensor, table: torch.Tensor) -> float:
    """The largest relative error of a head of the last sequence, in eps of the type."""
    keys = pages[table[-1].long()].flatten(0, 1)[:, 0].float()
    weights = (q[-1, 0].float() @ keys.T * D**-0.5).softmax(dim=-1)
    expected = weights @ keys[:, :VALUE]
    difference = (o[-1, 0].float() - expected).norm(dim=-1) / expected.norm(dim=-1)
    return float(difference.max() / torch.finfo(o.dtype).eps)


def main() -> None:
    print(torch.cuda.get_device_name())
    print("| heads | sequences x keys | us | predicted | TB/s | TFLOP/s | error, eps |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    cold = torch.empty(2**28, dtype=torch.uint8, device="cuda")
    for heads, batch, n_keys, predicted in ROWS:
        n_pages = batch * n_keys // PAGE
        pages = torch.randn(n_pages, PAGE, 1, D, device="cuda", dtype=torch.bfloat16)
        table = torch.randperm(n_pages, device="cuda").int().view(batch, -1)
        q = torch.randn(batch, 1, heads, D, device="cuda", dtype=torch.bfloat16)
        lengths = ints([n_keys] * batch, "cuda")
        times = []
        for _ in range(ROUNDS + 2):
            cold.zero_()
            events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]  # type: ignore[no-untyped-call]
            begin, end = events
            torch.cuda._sleep(200_000)  # type: ignore[no-untyped-call]  # the host is ahead
            begin.record()
            o, _ = flash_attention.flash_mla_with_kvcache(q, pages, table, lengths, VALUE)
            end.record()
            end.synchronize()
            times.append(1000 * begin.elapsed_time(end))
        us = statistics.median(times[2:])
        n_bytes = pages.numel() * 2
        flops = 2 * heads * batch * n_keys * (D + VALUE)
        print(
            f"| {heads} | {batch} x {n_keys} | {us:.1f} | {predicted} | {n_bytes / us / 1e6:.2f} "
            f"| {flops / us / 1e6:.0f} | {error(o, q, pages, table):.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
