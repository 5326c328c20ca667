"""Problems one after another, or several at once where there are several workers."""

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def each(
    items: Sequence[Item], work: Callable[[Item], Result], n_threads: int
) -> Iterator[tuple[Item, Result]]:
    """(item, result) as they are ready. An exception in `work` is raised here. With one thread
    everything runs in the caller's, in order."""
    if n_threads <= 1:
        for item in items:
            yield item, work(item)
        return
    todo: queue.SimpleQueue[Item] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[Item, Result] | BaseException] = queue.SimpleQueue()
    for item in items:
        todo.put(item)

    def run() -> None:
        while True:
            try:
                item = todo.get_nowait()
            except queue.Empty:
                return
            try:
                done.put((item, work(item)))
            except BaseException as error:
                done.put(error)
                return

    # Daemons: a sweep that is interrupted does not wait for kernels on other hosts.
    for _ in range(min(n_threads, len(items))):
        threading.Thread(target=run, daemon=True).start()
    for _ in items:
        found = done.get()
        if isinstance(found, BaseException):
            raise found
        yield found
