"""The compiled module: what it links, what importing it costs, what it refuses."""

from __future__ import annotations

import subprocess

import pytest

from flash_helpers.kernels.backward_args import POINTER_FIELDS, STRIDED, pack_backward_args
from flash_helpers.kernels.forward_args import pack_forward_args

from .conftest import Tree


def test_it_links_neither_torch_nor_the_driver(tree: Tree) -> None:
    command = ["readelf", "--dynamic", "--wide", str(tree.extension)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    needed = [line.split("[")[1].rstrip("]\n") for line in text.splitlines() if "(NEEDED)" in line]
    allowed = {"libstdc++", "libgcc_s", "libc", "libm", "ld-linux-x86-64", "ld-linux-aarch64"}
    allowed |= {"libdl", "libpthread", "librt"}  # before glibc 2.34
    assert needed and {name.split(".so")[0] for name in needed} <= allowed, needed
    assert "RUNPATH" not in text and "RPATH" not in text


def test_import_brings_nothing_else(tree: Tree) -> None:
    """No torch, no other module, no thread, and no library but those that it links."""
    lines = tree.run_with_extension("print(threads); print(*brought); print(*mapped)").split("\n")
    assert lines[:2] == ["1", ""]
    allowed = {"_C", "libstdc++", "libgcc_s", "libm", "libdl", "libpthread", "librt"}
    names = {name.split(".")[0] for name in lines[2].split()}
    assert "_C" in names and names <= allowed


def test_it_knows_what_it_is(tree: Tree) -> None:
    code = "print(_C.kernel_set(), _C.architectures(), len(_C.fingerprint()))\n"
    code += "print(_C.forward_args_size(), sorted(_C.kernel_names()) == _C.kernel_names())"
    lines = tree.run_with_extension(code).splitlines()
    assert lines == ["prog ['sm_80'] 64", "168 True"]


def test_another_build_has_another_fingerprint(tree: Tree) -> None:
    code = "print(_C.fingerprint())"
    tree.build()
    before = tree.run_with_extension(code)
    launcher = tree.root / "csrc" / "runtime" / "launcher.cpp"
    text = launcher.read_text()
    launcher.write_text(text + "// planted\n")
    tree.build()
    assert tree.run_with_extension(code) != before
    launcher.write_text(text)
    tree.build()
    assert tree.run_with_extension(code) == before


def launch(tree: Tree, arguments: str, prepare: str = "") -> str:
    code = f"{prepare}\ntry:\n    print('launched', _C.launch({arguments}))\n"
    code += "except Exception as error:\n    print(type(error).__mro__[:2], error)\n"
    return tree.run_with_extension(code)


def packed(**changes: object) -> str:
    """Code for the bytes of a small valid launch, some arguments changed."""
    shape = {"batch": 1, "seqlen_q": 64, "seqlen_k": 64, "n_heads_q": 1, "n_heads_kv": 1}
    pointers = {"q": 4096, "k": 4096, "v": 4096, "o": 4096, "lse": 0}
    strides = {f"{tensor}_strides": (8192, 128, 128) for tensor in "qkvo"}
    values = {**pointers, **strides, **shape, "softmax_scale": 0.125, **changes}
    return repr(pack_forward_args(**values))  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [0, 167, 169])
def test_arguments_of_another_size_are_refused(tree: Tree, size: int) -> None:
    said = launch(tree, f"0, bytes({size}), 0, 0")
    assert "ValueError" in said and f"args has {size} bytes: expected the 168" in said


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"batch": 0}, "batch = 0"),
        ({"seqlen_q": 65}, "only for seqlen_q and seqlen_k that are multiples of B_r = 64"),
        ({"seqlen_k": 96}, "multiples of B_r = 64 and B_c = 64, not causal"),
        ({"causal": True}, "not causal"),
        ({"seqlen_k": 0, "k": 0, "v": 0}, "this build has it only for"),
        ({"seqlen_k": -64}, "seqlen_k = -64: expected 0 to 2147482623"),
        ({"seqlen_q": 2**31 - 64}, "seqlen_q = 2147483584: expected 0 to 2147482623"),
        ({"n_heads_q": 3, "n_heads_kv": 2}, "n_heads_q = 3: expected a multiple of n_heads_kv"),
        ({"k": 0}, "k is null"),
        ({"v": 4104}, "v is not aligned to 16 bytes"),
        ({"o_strides": (8192, 128, 4)}, "o_stride_head = 4 elements: expected a multiple of 8"),
        ({"batch": 2**31 - 1, "n_heads_q": 2}, "(of 64 rows) * n_heads_q * batch exceed"),
    ],
)
def test_arguments_that_would_fault_are_refused(
    tree: Tree, changes: dict[str, object], expected: str
) -> None:
    said = launch(tree, f"0, {packed(**changes)}, 0, 0")
    assert "ValueError" in said and expected in said, said


def test_an_unknown_kernel_is_refused(tree: Tree) -> None:
    assert "IndexError" in launch(tree, f"2, {packed()}, 0, 0")
    assert "TypeError" in launch(tree, f"-1, {packed()}, 0, 0")
    assert "TypeError" in launch(tree, f"0, bytearray({packed()}), 0, 0")


def test_without_a_driver_a_launch_is_an_error_not_a_crash(tree: Tree) -> None:
    prepare = "import os\nif _C.device_count(): print('there is a device'); sys.exit(0)"
    said = launch(tree, f"0, {packed()}, 0, 0", prepare)
    if "there is a device" in said:
        pytest.skip("this machine has a driver and a device")
    assert "CudaError" in said and "RuntimeError" in said
    assert "cudaGetDevice" in said and "device_guard.h" in said
    again = tree.run_with_extension("print(_C.device_count())")
    assert again.strip() == "0"


# Tensors of an array library that says they are on a CUDA device; nothing reads their memory.
TENSORS = """
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


def test_a_remembered_call_is_launched_again(tree: Tree) -> None:
    code = f"known.remember('config', *tensors, None, None, False, 0, {packed()})\n"
    code += "print(len(known), ask(), ask(Tensor(8)), ask(object()), ask(grad=True), sep='\\n')\n"
    code += "known.clear(); print(ask())"
    prepare = "if _C.device_count(): print('there is a device'); sys.exit(0)"
    said = tree.run_with_extension(f"{prepare}{TENSORS}{code}").splitlines()
    if said == ["there is a device"]:
        pytest.skip("the kernel would read what is at made-up addresses")
    assert said[0].endswith("exchange API has version 2.0: expected 1.x")
    assert said[1:3] == ["False", "1"]
    again, *others = said[3:]
    assert again.startswith("CudaError: "), "it was not launched"
    no_attribute = "AttributeError: 'Tensor' object has no attribute 'requires_grad'"
    assert [line for line in others if line] == ["False", "False", no_attribute, "False"]


PLAIN = """
around = {"recorder": None}
busy = grad = False
def other(): raise RuntimeError("asked")
def calls(*quiet):
    return _C.PlainCalls(known, "config", [lambda: busy, *quiet], [(around, "recorder", None),
                         (around, "not in this release", 1)], lambda: grad, lambda q: tensors[3],
                         lambda q: Tensor(1 << 30))
def attend(*qkv, scale=None, causal=False, lse=False, quiet=()):
    try:
        return str(calls(*quiet).attend(*(qkv or tensors[:3]), scale, causal, lse))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
known.remember("config", *tensors, None, None, False, 0, ARGS)
Tensor.requires_grad, Tensor.negated, Tensor.is_neg = False, False, lambda self: self.negated
print(attend())
trained = Tensor(1 << 20, requires_grad=True)
print(attend(trained, *tensors[1:3]))
busy = True
print(attend())
busy, around["recorder"] = False, "something"
print(attend())
around["recorder"], grad = None, True
print(attend(), attend(trained, *tensors[1:3]), sep="\\n")
print(attend(scale=0.5), attend(scale=-0.5), attend(scale=1), attend(causal=True), attend(lse=True),
      attend(1, 2, 3), attend(*tensors[:2], Tensor(3 << 20, negated=True)), attend(quiet=[other]),
      sep="\\n")
"""


def test_a_plain_call_goes_straight_to_the_launch(tree: Tree) -> None:
    prepare = "if _C.device_count(): print('there is a device'); sys.exit(0)"
    code = PLAIN.replace("ARGS", packed())
    said = tree.run_with_extension(f"{prepare}{TENSORS}{code}").splitlines()
    if said == ["there is a device"]:
        pytest.skip("the kernel would read what is at made-up addresses")
    launched, untrained, watched, recorded, again, trained, *unknown, asked = said[2:]
    for line in (launched, untrained, again):
        assert line.startswith("CudaError: "), "it was not launched"
    assert [watched, recorded, trained] == ["None"] * 3
    assert unknown == ["None"] * 7 and asked == "RuntimeError: asked"


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
# What differs from the remembered call, and what becomes of it.
NOT_THE_SAME = {
    "another configuration": ("config='other'", "False"),
    "a scale": ("scale=0.125", "False"),
    "a scale that is no float": ("scale=1", "False"),
    "causal": ("causal=True", "False"),
    "causal in other clothes": ("causal=0", "False"),
    "a gradient that is not wanted": ("d_q=None", "False"),
    "a gradient of the log-sum-exp": ("d_lse=Tensor(64 << 20)", "False"),
    "no sums of dQ": ("d_q_sums=None", "False"),
    "no tensor": ("k=object()", "False"),
    "not aligned": ("d_o=Tensor(8 + (64 << 20))", "False"),
    "freed memory": ("v=Tensor(0)", "False"),
    "an output over an input": ("d_v=found['o']", "False"),
    "an output over another": ("d_v=found['d_k']", "False"),
    "scratch memory over an input": ("row_stats=found['d_o']", "False"),
    "one requires a gradient": ("q=Tensor(1 << 20, requires_grad=True), grad=True", "False"),
    "recorded, of who knows what": ("grad=True", "no attribute 'requires_grad'"),
    "tensors elsewhere": ("q=Tensor(64 << 20), d_o=Tensor(65 << 20)", "computes no gradients"),
}  # fmt: skip


def test_a_remembered_backward_pass_is_launched_again(tree: Tree) -> None:
    """Kernel 0 is of a forward pass, so that the launch itself refuses: it was reached."""
    code = "\n".join(f"print(ask({changes}))" for changes, _ in NOT_THE_SAME.values())
    code += "\nknown.clear(); print(ask(), len(known))"
    code += "\ntry: known.remember('config', *found.values(), None, False, 0, args[1:])"
    code += "\nexcept ValueError as error: print(error)"
    forward_s, first, again, *others = tree.run_with_extension(
        f"{TENSORS}{REMEMBERED}{code}"
    ).splitlines()[1:]
    assert (forward_s, first) == ("False", "False")
    assert again.startswith("1 ValueError: ") and "it computes no gradients" in again
    *answers, cleared, refused = others
    assert (cleared, refused) == ("False 0", "args is not an argument record of 320 bytes")
    for (what, (_, expected)), answer in zip(NOT_THE_SAME.items(), answers, strict=True):
        assert expected in answer, f"{what}: {answer}"
