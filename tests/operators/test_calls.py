"""What an operator refuses before a launch, and that torch.compile sees it as one node."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._dynamo.backends.common import aot_autograd
from torch._subclasses.fake_tensor import FakeTensorMode

pytest.importorskip("triton")

from flash_attention import operators
from flash_attention.operators.elementwise.op import BlockConfig
from flash_attention.operators.rows.op import RowConfig
from flash_attention.operators.show import main
from flash_attention.triton_kit import versions
from flash_attention.triton_kit.offline import stand_in


def tensor(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


def freed() -> torch.Tensor:
    x = tensor(8)
    x.untyped_storage().resize_(0)
    return x


UNTYPED: Any = operators
BASE = tensor(8)
BAD: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: UNTYPED.add(None, BASE), TypeError, "x is None: expected a torch.Tensor"),
    (lambda: UNTYPED.add(BASE, 1.0), TypeError, "y is a float: expected a torch.Tensor"),
    (lambda: UNTYPED.add(BASE, tensor(8, dtype=torch.float16)), ValueError,
     "y has dtype torch.float16, but x has torch.float32"),
    (lambda: UNTYPED.add(BASE, tensor(3)), ValueError,
     r"y has shape \(3,\), which cannot be broadcast with that of x, \(8,\)"),
    (lambda: UNTYPED.relu(tensor(8, dtype=torch.float64)), ValueError,
     "x has dtype torch.float64: allowed are torch.float16, torch.bfloat16 and torch.float32"),
    (lambda: UNTYPED.relu(BASE.to_sparse()), ValueError, "x has layout torch.sparse_coo"),
    (lambda: UNTYPED.relu(torch.zeros(2, device="meta")), ValueError, "x is on meta: only cuda"),
    (lambda: UNTYPED.relu(freed()), ValueError, "x needs 32 bytes of memory"),
    (lambda: UNTYPED.relu(torch.zeros(3, dtype=torch.complex64).conj().imag), ValueError,
     "x is a negated view"),
    (lambda: UNTYPED.add_scalar(BASE, "a"), TypeError, "alpha is a str: expected a number"),
    (lambda: UNTYPED.add_scalar(BASE, True), TypeError, "alpha is a bool: expected a number"),
    (lambda: UNTYPED.add_scalar(BASE, 1e39), ValueError, "alpha is 1e"),
    (lambda: UNTYPED.gelu(BASE, "erf"), ValueError, "approximate is 'erf': allowed are none, ta"),
    (lambda: UNTYPED.relu(BASE, out=tensor(9)), ValueError, r"out has shape \(9,\): expected \("),
    (lambda: UNTYPED.relu(BASE, out=torch.zeros(1).expand(8)), ValueError, "out has strides"),
    (lambda: UNTYPED.relu(BASE[1:], out=BASE[:7]), ValueError, "out shares memory with x"),
    (lambda: UNTYPED.relu(BASE, config=BlockConfig(BLOCK=100)), ValueError,
     "BLOCK 100: allowed are powers of two"),
    (lambda: UNTYPED.relu(BASE, config=3), TypeError, "config is a int: expected a BlockConfig"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "words"), BAD, ids=[words[:30] for *_, words in BAD])
def test_refused(call: Callable[[], object], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        call()


def test_a_name_that_does_not_exist() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'gelo'"):
        operators.gelo  # noqa: B018
    assert "gelu" in dir(operators)


def test_another_triton_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process of its own: the answer is kept."""
    code = (
        "import torch, triton; triton.__version__ = '3.5.1'\n"
        "from flash_attention import operators\n"
        "operators.relu(torch.zeros(3))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"triton 3.5.1 is installed: the kernels are tested with {versions.MINORS[0][0]}." in (
        done.stderr
    )


def test_importing_the_package_imports_neither_triton_nor_its_parts() -> None:
    code = (
        "import sys; from flash_attention import operators; "
        "sys.exit('triton' in sys.modules or 'flash_attention.operators.launching' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def captured(function: Callable[..., Any], *shapes: tuple[int, ...]) -> list[str]:
    """The targets of the graph that torch.compile makes of a function of CUDA tensors."""
    graphs: list[Any] = []

    def keep(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    torch._dynamo.reset()
    with stand_in(90), FakeTensorMode():
        tensors = [torch.empty(shape, device="cuda") for shape in shapes]
        torch.compile(function, backend=aot_autograd(fw_compiler=keep), fullgraph=True)(*tensors)
    assert len(graphs) == 1
    return [str(node.target) for node in graphs[0].graph.nodes if node.op == "call_function"]


def test_torch_compile_sees_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = type("Properties", (), {"multi_processor_count": 132})
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: gpu)
    targets = captured(lambda x, y: operators.gelu(operators.add(x, y)) * 2, (40, 30), (30,))
    assert targets.count("triton_kernel_wrapper_functional") == 2
    assert "aten.mul.Tensor" in targets


X, SQUARE = tensor(6, 40), tensor(16, 16)
IMAGE, FILTERS = tensor(1, 3, 6, 6), tensor(4, 3, 3, 3)
COMPILED: dict[str, Callable[[], torch.Tensor]] = {
    "add": lambda: operators.add(X, X),
    "add_scalar": lambda: operators.add_scalar(X, 1.0),
    "gelu": lambda: operators.gelu(X, approximate="tanh"),
    "rms_norm": lambda: operators.rms_norm(X, X[0]),
    "layer_norm": lambda: operators.layer_norm(X, X[0], X[1], residual=X)[0],
    "mean_var": lambda: operators.mean_var(X)[1],
    "mean_var, welford": lambda: operators.mean_var(X, algorithm="welford")[1],
    "softmax": lambda: operators.softmax(X),
    "log_softmax, two_pass": lambda: operators.log_softmax(X, algorithm="two_pass"),
    "cross_entropy": lambda: operators.cross_entropy(X, X[:, 0].long()),
    "matmul": lambda: operators.matmul(SQUARE, SQUARE, activation="silu"),
    "conv2d": lambda: operators.conv2d(IMAGE, FILTERS, padding=1),
}


@pytest.mark.parametrize("name", COMPILED)
def test_torch_compile_meets_no_check_that_a_graph_cannot_hold(name: str) -> None:
    """It comes as far as the operator itself, which wants a GPU. What it reads are ordinary
    tensors, as those of a GPU are: checks of memory must not be asked of them."""
    torch._dynamo.reset()
    with pytest.raises(Exception, match=r"torch\.compile cannot record a call on CPU tensors"):
        torch.compile(COMPILED[name], backend="aot_eager", fullgraph=True)()


EAGER: dict[str, Callable[[], torch.Tensor]] = {
    "a graph on the CPU": lambda: operators.rms_norm(X + 1, X[0] + 2) * 2,
    "out": lambda: operators.relu(X - 1, out=torch.ones_like(X)) * 2,
    "config": lambda: operators.softmax(X * 2, config=RowConfig(1, 64, True, 4)) * 2,
    "out of a product": lambda: operators.matmul(SQUARE, SQUARE + 1, out=SQUARE.clone()) * 2,
}


@pytest.mark.parametrize("name", EAGER)
def test_torch_compile_breaks_its_graph_where_there_is_no_operator(name: str) -> None:
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(EAGER[name], backend="eager")(), EAGER[name]())


def test_what_is_refused_is_refused_when_compiled() -> None:
    torch._dynamo.reset()
    call = torch.compile(lambda: operators.relu(BASE[1:], out=BASE[:7]), backend="eager")
    with pytest.raises(ValueError, match="out shares memory with x"):
        call()


@pytest.mark.parametrize("name", ["vector_add", "mean_var", "cross_entropy"])
def test_an_operator_shows_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("says what it says without a GPU")
    assert main([name, "--n", "300", "2000", "--dtype", "bf16"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["n=300", "n=2000"]
    assert all(" avg=" in line and " effective_bw=" in line for line in lines)


def test_what_show_does_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["vector_ad"])
    assert stopped.value.code == 2
    assert "vector_add" in capsys.readouterr().err
