"""The C records of csrc/emulator: runtime/{errors,kernel_info}.h and door/launch.h, for ctypes."""

import ctypes
from ctypes import POINTER, Structure, c_char, c_char_p, c_uint32, c_uint64, c_void_p

WAITS = (
    *("none", "shfl", "vote", "redux", "bar.warp.sync", "ldmatrix", "mma", "bar.sync"),
    *("stmatrix", "elect", "wgmma", "mbarrier", "setmaxnreg", "barrier.cluster"),
)


class KernelParameter(Structure):
    _fields_ = [("offset", c_uint32), ("bytes", c_uint32)]


class KernelGlobal(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("address", c_void_p),
        ("bytes", c_uint64),
        ("writable", c_uint32),
    ]


class KernelInfo(Structure):
    _fields_ = [
        ("entry", c_void_p),
        ("parameters", POINTER(KernelParameter)),
        ("globals", POINTER(KernelGlobal)),
        ("n_parameters", c_uint32),
        ("n_globals", c_uint32),
        ("static_shared_bytes", c_uint32),
        ("local_bytes", c_uint32),
        ("stack_bytes", c_uint64),
        ("uses_global_atomics", c_uint32),
        ("smallest_access", c_uint32),
        ("orders_blocks", c_uint32),
        ("uses_sm90", c_uint32),
        ("begins_early", c_uint32),
        ("cluster", c_uint32),
    ]


class GlobalRange(Structure):
    _fields_ = [
        ("begin", c_uint64),
        ("bytes", c_uint64),
        ("writable", c_uint32),
        ("index", c_uint32),
    ]


class AccessCounts(Structure):
    _fields_ = [
        ("wavefronts", c_uint64),
        ("ideal_wavefronts", c_uint64),
        ("sectors", c_uint64),
        ("ideal_sectors", c_uint64),
    ]


class TrafficRequest(Structure):
    _fields_ = [
        ("n_blocks", c_uint32),
        ("n_accesses", c_uint32),
        ("executions", POINTER(c_uint64)),
        ("accesses", POINTER(AccessCounts)),
    ]


class LaunchRequest(Structure):
    _fields_ = [
        ("kernel", POINTER(KernelInfo)),
        ("params", c_void_p),
        ("ranges", POINTER(GlobalRange)),
        ("n_ranges", c_uint32),
        ("grid", c_uint32 * 3),
        ("block", c_uint32 * 3),
        ("dynamic_shared_bytes", c_uint32),
        ("cluster", c_uint32),
        ("n_workers", c_uint32),
        ("order", c_uint32),
        ("finds_races", c_uint32),
        ("early_loads", c_uint32),
        ("ordered_sums", c_uint32),
        ("warps_meet", c_uint32),
        ("seed", c_uint64),
        ("max_backward_branches", c_uint64),
        ("traffic", POINTER(TrafficRequest)),
    ]


class ErrorRecord(Structure):
    _fields_ = [
        ("kind", c_uint32),
        ("site", c_uint32),
        ("ctaid", c_uint32 * 3),
        ("tid", c_uint32 * 3),
        ("block_index", c_uint64),
        ("message", c_char * 2048),
    ]


class Counts(Structure):
    _fields_ = [
        ("collectives", c_uint64 * len(WAITS)),
        ("mma_instructions", c_uint64),
        ("async_copies", c_uint64),
        ("bulk_loads", c_uint64),
        ("bulk_stores", c_uint64),
        ("global_loads", c_uint64),
        ("global_stores", c_uint64),
    ]


COUNTED = tuple(name for name, *_ in Counts._fields_[1:])


class RaceParty(Structure):
    _fields_ = [
        ("block", c_uint64),
        ("thread", c_uint32),
        ("site", c_uint32),
        ("barrier_site", c_uint32),
        ("passed_since", c_uint32),
    ]


class RaceReport(Structure):
    _fields_ = [
        ("kind", c_uint32),
        ("is_global", c_uint32),
        ("first", RaceParty),
        ("second", RaceParty),
        ("address", c_uint64),
        ("bytes", c_uint64),
        ("count", c_uint64),
        ("latest_access", c_uint64),
    ]


class RaceTable(Structure):
    _fields_ = [("reports", RaceReport * 256), ("distinct", c_uint64), ("total", c_uint64)]


class LaunchResult(Structure):
    _fields_ = [
        ("error", ErrorRecord),
        ("counts", Counts),
        ("races", RaceTable),
        ("blocks_run", c_uint64),
    ]


def load_runtime(path: str) -> ctypes.CDLL:
    library = ctypes.CDLL(path)
    library.emulator_launch.argtypes = [POINTER(LaunchRequest), POINTER(LaunchResult)]
    library.emulator_launch.restype = None
    return library
