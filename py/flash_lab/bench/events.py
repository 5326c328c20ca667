"""What a worker says, checked. Kernels run in it, so anything may come through its pipe: a line
that is no event ends the worker, a result with figures that cannot be becomes a failed row."""

from typing import Any

from flash_helpers.base.safe_read import check_json, parse_json

from .measure import result
from .records import FINAL_STATUSES, LAUNCH_FAIL, OK
from .row import problem_with

Event = dict[str, Any]
# Of a line: the most samples that can be asked for take 2 MB.
MOST_BYTES = 1 << 24

_NEEDED: dict[str, dict[str, type]] = {
    "ready": {"environment": dict},
    "running": {"kernel": str, "phase": str},
    "result": {"kernel": str},
    "done": {},
    "lost": {},
}


class EventError(ValueError):
    """This is no event; the message says what it is, to go on from "the worker sent"."""


def parse_event(line: bytes) -> Event:
    """Raises EventError. NaN and infinities pass: usable() says whose figures they are."""
    try:
        value = parse_json(line, finite=False)
    except ValueError as error:
        raise EventError(f"a line that is not JSON: {line[:60]!a} ({error})") from None
    return checked(value)


def checked(value: object) -> Event:
    """The event, if it is one: also for those that came as objects, not as text. Raises
    EventError."""
    kind = value.get("event") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(kind, str) or kind not in _NEEDED:
        raise EventError(f"no event: {ascii(value)[:100]}")
    for name, needed in _NEEDED[kind].items():
        if not isinstance(value.get(name), needed):
            raise EventError(f"`{kind}` without {name}: {ascii(value)[:100]}")
    if kind == "ready" and (problem := _problem_with_environment(value["environment"])):
        raise EventError(f"`ready`, but {problem}")
    return value


def _problem_with_environment(environment: Event) -> str:
    """Every row holds it, and is told from others by it."""
    try:
        check_json(environment)
    except ValueError as error:
        return f"environment has {error}"
    return problem_with({"environment": environment})


def usable(event: Event) -> Event:
    """The event as it is, or for a result that cannot be used a failed one that says why."""
    if event["event"] != "result":
        return event
    problem = _problem(event)
    if not problem:
        return event
    failed = result(event["kernel"], LAUNCH_FAIL, f"the worker's row cannot be used: {problem}")
    return failed | ({"worker": event["worker"]} if isinstance(event.get("worker"), str) else {})


def _problem(event: Event) -> str:
    status = event.get("status")
    if status not in FINAL_STATUSES:
        return f"status is {ascii(status)[:60]}: expected one of {', '.join(FINAL_STATUSES)}"
    if not isinstance(event.get("error"), str):
        return "it has no error, not even an empty one"
    if problem := problem_with(event):
        return problem
    try:
        check_json(event)
    except ValueError as error:
        return str(error)
    return "" if status != OK or event.get("samples_ms") else "it is ok, but has no samples_ms"
