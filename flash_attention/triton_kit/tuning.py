"""The fastest configuration of a Triton or Gluon kernel for a problem: measured once, then read
from a JSON file in the cache directory (flash_helpers.base.cache)."""

import hashlib
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic

import torch

from flash_helpers.base.atomic_file import write_atomically
from flash_helpers.base.cache import cache_dir, exclusive
from flash_helpers.base.safe_read import parse_json, read_regular
from flash_helpers.base.timing import CudaTimer, Policy, interleaved

from .op import C, Op, P
from .versions import installed_version

SCHEMA = 2
KIT = Path(__file__).parent
_MOST_MS = 1e9  # of a call: eleven days
_POLICY = Policy(warmups=1, repeats=8, cold_l2=False, burst=2)

Call = Callable[[], object]
# Milliseconds of each configuration that runs, the reason of each that does not.
Measured = tuple[dict[int, float], dict[int, str]]


@dataclass(frozen=True)
class Tuned(Generic[C]):
    """The fastest configuration, its milliseconds (median of one call), and for each one that did
    not run its fields and the reason. `cached`: read, not measured."""

    config: C
    milliseconds: float
    failed: tuple[tuple[dict[str, Any], str], ...] = ()
    cached: bool = False


class TuningFailedError(RuntimeError):
    """No configuration runs on this device."""


class NotTunedError(LookupError):
    """The cache has no configuration for a problem, and none shall be measured."""


class TuningCacheWarning(UserWarning):
    """A file in the cache was not as it should be, or a configuration did not run."""


def best_for(
    op: Op[C, P], problem: P, tensors: Sequence[torch.Tensor], *, measure_now: bool = True,
    measure: Callable[[Sequence[Call], torch.device], Measured] | None = None,
) -> Tuned[C]:  # fmt: skip
    """The fastest configuration of an Op for a problem and its tensors, which are checked: from the
    cache, else by `measure` (measure_on_gpu). Raises TuningFailedError if none runs; NotTunedError
    if the cache has none and `measure_now` is False, and launches nothing then."""
    device = tensors[0].device

    def timed(candidates: Sequence[C]) -> Measured:
        if not measure_now:
            raise NotTunedError(f"nothing was measured yet for {op.name}, {problem}")
        calls: list[Call] = [partial(op.launch, c, problem, tensors) for c in candidates]
        return (measure or measure_on_gpu)(calls, device)

    def make(**fields: Any) -> C:
        return op.checked(op.config_type(**fields), problem)

    major, minor = torch.cuda.get_device_capability(device)
    space = op.space(problem, 10 * major + minor)
    return best(tuning_key(op, problem, device), space, make, timed)


def tuning_key(op: Op[Any, P], problem: P, device: torch.device) -> dict[str, Any]:
    """All that the fastest configuration may depend on."""
    return {
        "schema": SCHEMA,
        "gpu": torch.cuda.get_device_name(device),
        "triton": installed_version(),
        "source": source_hash(op.folder(), KIT),
        "kind": op.name,
        **op.key(problem),
    }


def source_hash(*folders: Path) -> str:
    """A hash of every Python file in the folders, so that no list of sources can lack one."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            name = path.relative_to(folder).as_posix()
            digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def best(
    key: Mapping[str, Any],
    candidates: Sequence[C],
    make: Callable[..., C],
    measure: Callable[[Sequence[C]], Measured],
) -> Tuned[C]:
    """The cached winner for `key`, or the fastest of `candidates`, which is then cached. `make`
    builds a configuration from its fields. A file that cannot be read is reported and written
    anew. Raises TuningFailedError if nothing runs."""
    spelled = json.dumps(key, sort_keys=True)
    name, key = hashlib.sha256(spelled.encode()).hexdigest()[:24], json.loads(spelled)
    path = cache_dir("triton_tuning") / f"{name}.json"
    if (found := _read(path, key, make)) is not None:
        return found
    with exclusive(path):
        if (found := _read(path, key, make, quiet=True)) is not None:  # another process was faster
            return found
        measured, reasons = measure(candidates)
        times = {i: ms for i, ms in measured.items() if 0 < ms <= _MOST_MS}  # no NaN
        reasons |= {i: f"it took {ms} ms" for i, ms in measured.items() if i not in times}
        failed = tuple((candidates[i].as_dict(), reason) for i, reason in sorted(reasons.items()))
        if not times:
            raise TuningFailedError(f"no configuration runs: {_described(failed)}")
        if failed:
            warnings.warn(
                f"{len(failed)} of {len(candidates)} configurations do not run: "
                f"{_described(failed)}", TuningCacheWarning, stacklevel=3,
            )  # fmt: skip
        winner = min(times, key=times.__getitem__)
        entry = {
            "key": key, "config": candidates[winner].as_dict(),
            "milliseconds": times[winner], "failed": [list(item) for item in failed],
        }  # fmt: skip
        text = json.dumps(entry | {"checksum": _checksum(entry)}, indent=1, sort_keys=True)
        if path.exists() and not path.is_file():
            path.unlink()  # a FIFO, say; the folder is ours alone
        write_atomically(path, text.encode(), mode=0o600)
        return Tuned(candidates[winner], times[winner], failed)


def measure_on_gpu(calls: Sequence[Call], device: torch.device) -> Measured:
    """Milliseconds of each call, sampled in turns; a call that fails costs only itself."""
    named = {str(i): call for i, call in enumerate(calls)}
    reasons = failures(named, device)
    running = {name: call for name, call in named.items() if name not in reasons}
    times = medians(running, device, _POLICY)
    return {int(n): ms for n, ms in times.items()}, {int(n): r for n, r in reasons.items()}


def failures(calls: Mapping[str, Call], device: torch.device) -> dict[str, str]:
    """Calls each once, which compiles it: the reasons of those that do not run."""
    reasons = {}
    for name, call in calls.items():
        try:
            call()
            torch.cuda.synchronize(device)
        except Exception as error:  # out of resources, launch failure, compiler error
            words = f"{type(error).__name__}: {error}".split()  # ptxas's come in the third line
            reasons[name] = " ".join(words)[:300]
    return reasons


def medians(calls: Mapping[str, Call], device: torch.device, policy: Policy) -> dict[str, float]:
    """Milliseconds of each call, sampled in turns."""
    with torch.cuda.device(device):
        bursts = interleaved(calls, policy, CudaTimer(device, cold_l2=policy.cold_l2), seed=0)
    times = {}
    for name, taken in bursts.items():
        ms = sorted(sample.ms for burst in taken for sample in burst)
        times[name] = ms[len(ms) // 2]
    return times


def _read(
    path: Path, key: Mapping[str, Any], make: Callable[..., C], quiet: bool = False
) -> Tuned[C] | None:
    """The entry, if there is one and it is what `_write` made for this key."""
    try:
        text = read_regular(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = str(error)
    else:
        try:
            return _parsed(parse_json(text), key, make)
        except (ValueError, TypeError, KeyError) as error:
            reason = f"{type(error).__name__}: {error}"
    if not quiet:
        warnings.warn(
            f"{path} cannot be used ({reason}): it is measured and written anew",
            TuningCacheWarning, stacklevel=4,
        )  # fmt: skip
    return None


def _parsed(data: Any, key: Mapping[str, Any], make: Callable[..., C]) -> Tuned[C]:
    """Raises ValueError, TypeError or KeyError for an entry of another shape."""
    if not isinstance(data, dict) or data.get("key") != dict(key):
        raise ValueError("its key is not that of the problem")
    ms, failed, fields = data["milliseconds"], data["failed"], data["config"]
    if isinstance(ms, bool) or not isinstance(ms, (int, float)):
        raise ValueError(f"milliseconds is {ms!r}: expected a number")
    if not 0 < ms <= _MOST_MS:  # no NaN, and no integer beyond every float
        raise ValueError(f"milliseconds is {ms}: expected a positive number")
    if not isinstance(failed, list) or not all(
        isinstance(item, list) and len(item) == 2 and isinstance(item[0], dict)
        and isinstance(item[1], str) for item in failed
    ):  # fmt: skip
        raise ValueError("failed is no list of (configuration, reason)")
    if not isinstance(fields, dict):
        raise ValueError("config is no object")
    config = make(**fields)
    for name, expected in type(config)().as_dict().items():
        if type(fields.get(name)) is not type(expected):
            raise ValueError(f"config.{name} is {fields.get(name)!r}: expected as {expected!r}")
    if data.pop("checksum", None) != _checksum(data):
        raise ValueError("its checksum is not that of what it holds")
    return Tuned(config, float(ms), tuple((f, r) for f, r in failed), cached=True)


def _checksum(entry: Mapping[str, Any]) -> str:
    """A wrong digit is a good configuration, too, and perhaps a slow one."""
    return hashlib.sha256(json.dumps(entry, sort_keys=True).encode()).hexdigest()


def _described(failed: Sequence[tuple[dict[str, Any], str]]) -> str:
    return "; ".join(
        " ".join(f"{name}={value}" for name, value in config.items()) + f": {reason}"
        for config, reason in failed
    )
