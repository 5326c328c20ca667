"""Who prepares and rounds the queries of which heads, as in sm90_bwd_cluster/sections.h."""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass
from typing import ClassVar

LEAST_PAIRS = {False: 8, True: 32}  # of a head, without a mask and with it
MOST_BYTES = 34 << 20  # of sums that are cleared, added to or not rounded yet


@dataclass(frozen=True)
class HeadSections:
    """KV heads with all their pairs of thread blocks; `heads` are query heads, and `lead` is how
    many sections earlier, and later, a section's queries are taken care of."""

    pairs: int
    workers: int
    heads: int
    n_heads: int
    rows_of_head: int
    count: int
    lead: int

    # Of the fields, filled up to the alignment of the launch arguments.
    SIZE: ClassVar[int] = 64

    def prepared_before(self) -> int:
        """Query heads of which the kernel before the large one takes care."""
        return min(self.lead * self.heads, self.n_heads)

    def rounded_behind(self) -> int:
        """Those of the one behind it: all but whole sections that are early enough."""
        return self.n_heads - max(self.n_heads // self.heads - self.lead, 0) * self.heads

    def pack(self) -> bytes:
        """As the launch arguments end."""
        return struct.pack("<7I", *astuple(self)).ljust(self.SIZE, b"\0")
