"""What to do about what ncu says. ncu reports most failures in its text and exits with 0."""

import re

_ADVICE: tuple[tuple[str, str], ...] = (
    (
        r"ERR_NVGPUCTRPERM|permission to access NVIDIA GPU Performance Counters",
        "the driver refuses the performance counters to this user (ERR_NVGPUCTRPERM): run as root, "
        "or give the container CAP_SYS_ADMIN (docker run --cap-add=SYS_ADMIN), or let the "
        "administrator load the driver with NVreg_RestrictProfilingToAdminUsers=0 "
        "(https://developer.nvidia.com/ERR_NVGPUCTRPERM); pt_bench.py needs no counters",
    ),
    (
        r"driver resource was unavailable|ERR_NVGPUCTRBUSY|concurrently collecting profil",
        "another tool holds the performance counters: stop it, e.g. `dcgmi profile --pause` where "
        "DCGM watches the GPU, or the other ncu or nsys",
    ),
    (
        r"nsight-compute-lock",
        "another user owns ncu's lock file: set TMPDIR to a folder of your own",
    ),
    (
        r"Cuda driver is not compatible|driver version is not supported",
        "this ncu does not fit the CUDA driver: install the Nsight Compute of the driver's release "
        "and name it with --ncu",
    ),
    (
        r"(?i)failed to find metric|unknown metric|no metrics to collect",
        "ncu does not know a metric on this GPU: `ncu --query-metrics` lists those it has; leave "
        "the others out of --metrics",
    ),
    (
        r"(?i)unrecogni[sz]ed option|unknown option",
        "this ncu does not know an option that is needed: 2023.1 or newer is expected; name one "
        "with --ncu",
    ),
)
_NOTHING = re.compile("No kernels were profiled")
_AVAILABLE = re.compile(r"Available Kernels:\n((?:\d+\. .*\n?)+)")
_APPLICATION = re.compile(r"The application returned an error code \((\d+)\)")


def counters_are_refused(text: str) -> bool:
    """Every further run would end the same way."""
    return re.search(_ADVICE[0][0], text) is not None


def application_code(text: str) -> int | None:
    match = _APPLICATION.search(text)
    return int(match[1]) if match else None


def advise(text: str) -> list[str]:
    """One sentence for every known trouble, then ncu's own error lines."""
    found = [advice for pattern, advice in _ADVICE if re.search(pattern, text)]
    if _NOTHING.search(text):
        found.append(_no_kernels(text))
    errors = re.findall(r"^==ERROR== *(.+)$", text, re.MULTILINE)
    return found + [f"ncu says: {line}" for line in dict.fromkeys(errors)][:10]


def _no_kernels(text: str) -> str:
    match = _AVAILABLE.search(text)
    lines = match[1].split("\n") if match else []
    names = [line.split(". ", 1)[1] for line in lines if ". " in line]
    ours = [name for name in names if "flash" in name.lower() or "sdpa" in name]
    seen = f"; attention kernels that ran: {', '.join(ours)[:300]}" if ours else (
        f"; {len(names)} other kernels ran, none of attention" if names else ""
    )  # fmt: skip
    return f"ncu profiled no kernel: none that ran passed its name filter{seen}"


def tail(text: str, n_lines: int = 15) -> str:
    """The end of what a program printed."""
    lines = [line for line in text.splitlines() if line.strip()]
    return "\n".join(f"  | {line[:300]}" for line in lines[-n_lines:])
