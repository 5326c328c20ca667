"""Named ranges that profilers show: around a block of code, a function, or every submodule.

A range is two at once. Nsight Systems and Nsight Compute see an NVTX range (where torch has a GPU),
torch.profiler and its traces a `record_function`, which needs no GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from flash_helpers.base.lazy import torch


@contextmanager
def annotate(name: str) -> Iterator[None]:
    """A context manager, and a decorator.

    with annotate("forward"):
        ...

    @annotate("attention")
    def attention(q, k, v): ...
    """
    has_gpu = torch.cuda.is_available()
    with torch.profiler.record_function(name):
        if has_gpu:
            torch.cuda.nvtx.range_push(name)  # type: ignore[no-untyped-call]
        try:
            yield
        finally:
            if has_gpu:
                torch.cuda.nvtx.range_pop()  # type: ignore[no-untyped-call]


def annotate_modules(
    model: torch.nn.Module, *, backward: bool = True, prefix: str = ""
) -> ExitStack:
    """Makes every call of `model` and of its submodules a range: for good, until the result is
    closed, or within `with annotate_modules(model):`.

    Ranges are named by the path of the module (`layers.0`), the model itself by its class, after
    `prefix`. With `backward`, each node of the autograd graph that a module's forward pass made is
    a range `<name>.backward` when it runs, also after this is closed: module hooks would not do,
    since they forbid in-place operations and close before the gradients of the first layer are
    computed.
    """
    hooks = ExitStack()
    for path, module in model.named_modules():
        name = prefix + (path or type(model).__name__)
        ranges = _ForwardRanges(name, backward)
        before = module.register_forward_pre_hook(ranges.begin, with_kwargs=True)
        after = module.register_forward_hook(ranges.end, with_kwargs=True, always_call=True)
        hooks.callback(before.remove)
        hooks.callback(after.remove)
    return hooks


class _ForwardRanges:
    """The open ranges of one module: a stack, since a module may call itself."""

    def __init__(self, name: str, backward: bool) -> None:
        self._name, self._backward = name, backward
        self._open: list[ExitStack] = []

    def begin(self, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        entered = ExitStack()
        entered.enter_context(annotate(self._name))
        self._open.append(entered)

    def end(self, module: torch.nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if self._open:  # not if the hooks came in the middle of a forward pass
            self._open.pop().close()
        if self._backward:
            inputs = {tensor.grad_fn for tensor in _tensors((args, kwargs))}
            _annotate_nodes(output, inputs, f"{self._name}.backward")


_MARK = "flash_lab.profiling.nvtx"


def _annotate_nodes(output: Any, inputs: set[Any], name: str) -> None:
    """The nodes between outputs and inputs of a module that no submodule has taken."""
    left: list[Any] = [tensor.grad_fn for tensor in _tensors(output)]
    seen = set(inputs) | {None}
    while left:
        node = left.pop()
        if node in seen:
            continue
        seen.add(node)
        left += [following for following, _ in node.next_functions]
        # Gradients of parameters are added up in nodes that belong to the parameter.
        if _MARK not in node.metadata and node.name() != "torch::autograd::AccumulateGrad":
            node.metadata[_MARK] = name
            _annotate_node(node, name)


def _annotate_node(node: Any, name: str) -> None:
    """A node runs in one piece in one thread, so its range closes where it was opened."""
    entered: list[ExitStack] = []

    def begin(_grads: Any) -> None:
        stack = ExitStack()
        stack.enter_context(annotate(name))
        entered.append(stack)

    def end(_inputs: Any, _outputs: Any) -> None:
        if entered:
            entered.pop().close()

    node.register_prehook(begin)
    node.register_hook(end)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """In nested tuples, lists and dictionaries."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
