"""How much work a kernel does: one that does more than it must is right, and slow, and nothing but
a count shows it."""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields

from flash_helpers.emulator import LaunchReport

TOO_MUCH = "more or less work than needed"


@dataclass(frozen=True)
class Work:
    """Of a whole launch. Matrix instructions are counted by warps, bulk copies once, all else by
    threads."""

    matrix_instructions: int
    bulk_loads: int = 0
    bulk_stores: int = 0
    async_copies: int = 0
    global_loads: int = 0
    global_stores: int = 0

    @classmethod
    def done(cls, report: LaunchReport) -> Work:
        return cls(
            report.mma_instructions, report.bulk_loads, report.bulk_stores, report.async_copies,
            report.global_loads, report.global_stores,
        )  # fmt: skip

    def wrong(self, report: LaunchReport) -> str:
        """Where the launch did not do this, '' for nowhere."""
        done = self.done(report)
        differences = [
            f"{got} {field.name.replace('_', ' ')}, not {wanted}"
            for field, got, wanted in zip(fields(self), astuple(done), astuple(self), strict=True)
            if got != wanted
        ]
        return f"{TOO_MUCH}: {'; '.join(differences)}" if differences else ""
