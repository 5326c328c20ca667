"""Code for tests of the extension: tensors that nothing reads, and calls that it remembers."""

from __future__ import annotations

from flash_helpers.kernels.backward_args import POINTER_FIELDS, STRIDED, pack_backward_args
from flash_helpers.kernels.forward_args import pack_forward_args


def packed(**changes: object) -> str:
    """Code for the bytes of a small valid launch, some arguments changed."""
    shape = {"batch": 1, "seqlen_q": 64, "seqlen_k": 64, "n_heads_q": 1, "n_heads_kv": 1}
    pointers = {"q": 4096, "k": 4096, "v": 4096, "o": 4096, "lse": 0}
    strides = {f"{tensor}_strides": (8192, 128, 128) for tensor in "qkvo"}
    values = {**pointers, **strides, **shape, "softmax_scale": 0.125, **changes}
    return repr(pack_forward_args(**values))  # type: ignore[arg-type]


# DLPack's way to read another library's tensors: csrc/bindings/dlpack_exchange.h.
EXCHANGE = """
import ctypes as c
class Described(c.Structure):
    _fields_ = [("data", c.c_void_p), ("device", c.c_int32 * 2), ("ndim", c.c_int32),
                ("code", c.c_uint8), ("bits", c.c_uint8), ("lanes", c.c_uint16),
                ("shape", c.POINTER(c.c_int64)), ("strides", c.POINTER(c.c_int64)),
                ("offset", c.c_uint64)]
READ = c.PYFUNCTYPE(c.c_int, c.py_object, c.POINTER(Described))
STREAM = c.PYFUNCTYPE(c.c_int, c.c_int32, c.c_int32, c.POINTER(c.c_void_p))
class Exchange(c.Structure):
    _fields_ = [("version", c.c_uint32 * 2), ("previous", c.c_void_p), ("unused", c.c_void_p * 3),
                ("read", READ), ("stream", STREAM)]
"""
# Tensors of an array library that says they are on a CUDA device; nothing reads their memory.
TENSORS = (
    EXCHANGE
    + """
class Tensor:
    shape, strides = (c.c_int64 * 4)(1, 64, 1, 128), (c.c_int64 * 4)(8192, 128, 128, 1)
    def __init__(self, at, **attributes):
        self.at = at
        self.__dict__.update(attributes)
def read(tensor, found):
    found[0] = Described(tensor.at, (2, 0), 4, 2, 16, 1, tensor.shape, tensor.strides, 0)
    return 0
def cache(version, kind=_C.LaunchCache):
    api.version[0] = version
    new = c.pythonapi.PyCapsule_New
    new.restype, new.argtypes = c.py_object, [c.c_void_p, c.c_char_p, c.c_void_p]
    return kind(Tensor, new(c.addressof(api), b"dlpack_exchange_api", None))
api = Exchange((1, 0), None, (None, None, None), READ(read), STREAM(lambda *_: 0))
tensors = [Tensor(at << 20) for at in range(1, 5)]
def ask(*replaced, grad=False):
    try:
        given = *tensors[len(replaced):], *replaced
        return str(known.again("config", *given, None, None, False, grad))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
try:
    cache(2)
except ValueError as error:
    print(error)
known = cache(1)
print(ask())
"""
)


def backward_record() -> str:
    """Code for the bytes of a valid backward pass of the tensors above."""
    record = pack_backward_args(
        dict.fromkeys(POINTER_FIELDS, 4096), dict.fromkeys(STRIDED, (8192, 128, 128)),
        batch=1, seqlen_q=64, seqlen_k=64, n_heads_q=1, n_heads_kv=1, softmax_scale=0.125,
    )  # fmt: skip
    return repr(record)


REMEMBERED = f"""
names = {POINTER_FIELDS}
args = {backward_record()}
found = {{name: Tensor(i + 1 << 20) for i, name in enumerate(names)}} | {{"d_lse": None}}
known = cache(1, _C.BackwardLaunchCache)
def ask(scale=None, causal=False, grad=False, config="config", **changed):
    try:
        given = (found | changed).values()
        return str(known.again(config, *given, scale, causal, grad))
    except Exception as error:
        return f"{{type(error).__name__}}: {{error}}"
print(ask())
known.remember("config", *found.values(), None, False, 0, args)
print(len(known), ask())
"""
