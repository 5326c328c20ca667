"""The headers under test: the repository's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from flash_helpers.base.paths import csrc_dir


@pytest.fixture(scope="session")
def headers() -> Path:
    return csrc_dir() / "include"
