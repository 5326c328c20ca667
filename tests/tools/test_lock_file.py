"""Locks name their holder, and hold also where somebody deletes the file."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from flash_helpers.base import cache, lock_file


def test_a_lock_names_its_holder(tmp_path: Path) -> None:
    first, second = (lock_file.open_lock(tmp_path / "lock") for _ in range(2))
    try:
        assert lock_file.holder(first) == "unknown"
        assert lock_file.try_lock(first) and not lock_file.try_lock(second)
        assert lock_file.holder(second) == str(os.getpid())
    finally:
        os.close(first)
    assert lock_file.try_lock(second)
    os.close(second)


def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # pytest-timeout ends what hangs
        time.sleep(0.01)


def test_a_lock_that_is_deleted_while_somebody_waits_is_taken_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The waiter's file locks nobody out any more: who came in between made another."""
    entry, lock = tmp_path / "entry", tmp_path / "entry.lock"
    order: list[str] = []
    waited_for: set[int] = set()

    def tried(descriptor: int) -> bool:
        taken = lock_file.try_lock(descriptor)
        if not taken:
            waited_for.add(os.fstat(descriptor).st_ino)
        return taken

    def wait() -> None:
        with cache.exclusive(entry):
            order.append("waiter")

    first, between = cache.exclusive(entry), cache.exclusive(entry)
    first.__enter__()
    monkeypatch.setattr(cache, "try_lock", tried)
    waiter = threading.Thread(target=wait)
    waiter.start()
    _until(lambda: bool(waited_for))
    lock.unlink()
    between.__enter__()
    first.__exit__(None, None, None)
    _until(lambda: lock.stat().st_ino in waited_for or bool(order))
    order.append("in between")
    between.__exit__(None, None, None)
    waiter.join()
    assert order == ["in between", "waiter"]
