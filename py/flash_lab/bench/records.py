"""Rows of a result store as lines of JSON, and when two of them are about the same thing."""

import hashlib
import json
import zlib
from collections.abc import Mapping

from flash_helpers.base.safe_read import parse_json

from .row import OK as OK
from .row import Row

SCHEMA = 1
STARTED = "started"
WRONG, COMPILE_FAIL, LAUNCH_FAIL = "wrong", "compile_fail", "launch_fail"
TIMEOUT, SKIPPED = "timeout", "skipped"
FINAL_STATUSES = (OK, WRONG, COMPILE_FAIL, LAUNCH_FAIL, TIMEOUT, SKIPPED)
STATUSES = (STARTED, *FINAL_STATUSES)

_CHECKSUM = "crc32"
_ERROR_LINES, _ERROR_CHARACTERS = 4, 600
_REQUIRED = {"schema": int, "status": str, "key": str, "kernel": str, "provider": str}


def row_key(kernel: str, shape: Mapping[str, object], policy: Mapping[str, object]) -> str:
    """The identity of a measurement: the kernel, the problem and how it is sampled. The seed is
    left out: it decides the numbers that are multiplied, not how long that takes."""
    counted = {name: value for name, value in shape.items() if name != "seed"}
    text = _canonical({"kernel": kernel, "shape": counted, "policy": dict(policy)})
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def fingerprint(environment: Mapping[str, object]) -> str:
    """Equal for equal environments."""
    return hashlib.sha256(_canonical(dict(environment)).encode()).hexdigest()[:16]


def head(text: str) -> str:
    """The beginning of an error message: enough to know it again."""
    lines = [line.rstrip() for line in text.strip().splitlines()[:_ERROR_LINES]]
    return "\n".join(lines)[:_ERROR_CHARACTERS]


def encode(record: Mapping[str, object]) -> bytes:
    """One line, with a checksum: a flipped digit is still valid JSON."""
    body = _canonical({"schema": SCHEMA, **record})
    return f'{body[:-1]},"{_CHECKSUM}":{zlib.crc32(body.encode())}}}\n'.encode()


def decode(line: bytes) -> Row:
    """Raises ValueError that says what is wrong with the line."""
    try:
        record = parse_json(line)
    except ValueError as error:
        raise ValueError(f"not JSON ({error})") from None
    if not isinstance(record, dict):
        raise ValueError(f"a {type(record).__name__}, not an object")
    checksum = record.pop(_CHECKSUM, None)
    if checksum != zlib.crc32(_canonical(record).encode()):
        raise ValueError("its checksum does not match: the line was changed")
    for name, kind in _REQUIRED.items():
        if not isinstance(record.get(name), kind):
            raise ValueError(f"{name} is missing or not of type {kind.__name__}")
    if record["schema"] != SCHEMA:
        raise ValueError(f"schema {record['schema']}: this version reads schema {SCHEMA}")
    if record["status"] not in STATUSES:
        raise ValueError(f"status {record['status']!r}: expected one of {', '.join(STATUSES)}")
    return Row.from_json(record)


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
