"""The sizes that benchmarks use where nothing else is asked for."""

BENCHMARK_N_HEADS = 16
_MOST_TOKENS = 64 * 1024
_LARGEST_BATCH = 16


class _BatchSizes(dict[int, int]):
    """Lengths outside the table get the batch that keeps the number of tokens."""

    def __missing__(self, seq_len: int) -> int:
        if seq_len < 1:
            raise KeyError(f"seq_len must be at least 1, got {seq_len}")
        return max(1, min(_LARGEST_BATCH, _MOST_TOKENS // seq_len))


BATCH_SIZE_FOR_SEQ_LEN = _BatchSizes({512: 16, 1024: 16, 2048: 16, 4096: 16, 8192: 8, 16384: 4})
