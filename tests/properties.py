"""hypothesis, as the tests use it. Imported here only: its import takes longer than most of the
test files take to collect."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

__all__ = ["given", "settings", "st"]

# An example that takes long on a busy machine is no failure: what is counted is what it finds.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")
