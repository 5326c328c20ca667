"""A small training loop with a range around everything: an example for nsys and torch.profiler.

    nsys profile -o mlp --trace=cuda,nvtx --capture-range=cudaProfilerApi python -m \\
        flash_lab.profiling mlp --dim 1024 --num_layers 8 --use_optimizer
"""

from __future__ import annotations

from dataclasses import dataclass

from flash_helpers.base.lazy import torch

from .nvtx import annotate

# Steps 0 to 10 warm up; the first that a profiler sees is step_11.
LAST_WARMUP_STEP = 10


@dataclass(frozen=True)
class MlpRun:
    """`peak_bytes`: the most GPU memory that tensors took; None on the CPU. `profiled_steps`: those
    between cudaProfilerStart and cudaProfilerStop."""

    device: str
    peak_bytes: int | None
    profiled_steps: int


def get_device(index: int = 0) -> torch.device:
    """The GPU with this index if there is one, else the CPU."""
    return torch.device(f"cuda:{index}" if torch.cuda.is_available() else "cpu")


def make_mlp(dim: int, num_layers: int) -> torch.nn.Module:
    """linear, GELU, linear, GELU, ... on (batch, dim), each pair in a range `layer_i`."""

    class MLP(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layers = [torch.nn.Linear(dim, dim) for _ in range(num_layers)]
            self.layers = torch.nn.ModuleList(layers)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for i, layer in enumerate(self.layers):
                with annotate(f"layer_{i}"):
                    x = torch.nn.functional.gelu(layer(x))
            return x

    return MLP()


def run_mlp(
    dim: int, num_layers: int, batch_size: int, num_steps: int, use_optimizer: bool = False
) -> MlpRun:
    """Forward and backward passes of an MLP with random weights on a random input, in fp32, with
    Adam if `use_optimizer`. Prints the peak memory.

    Ranges: define_model, define_input, and for every step step_i with forward (layer_i in it),
    backward and optimizer_step. On a GPU the CUDA profiler starts after the warm-up steps, once,
    and stops at the end. Raises ValueError for sizes that are not positive.
    """
    sizes = {"dim": dim, "num_layers": num_layers, "batch_size": batch_size, "num_steps": num_steps}
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} is {size}: it must be at least 1")
    device = get_device()
    on_gpu = device.type == "cuda"
    if on_gpu:
        # Without it there are no statistics yet, and torch refuses.
        torch.cuda.init()  # type: ignore[no-untyped-call]
        torch.cuda.reset_peak_memory_stats(device)
    with annotate("define_model"):
        model = make_mlp(dim, num_layers).to(device)
    optimizer = torch.optim.Adam(model.parameters()) if use_optimizer else None
    with annotate("define_input"):
        x = torch.randn(batch_size, dim, device=device)
    first = LAST_WARMUP_STEP + 1
    try:
        for step in range(num_steps):
            if on_gpu and step == first:
                torch.cuda.synchronize()
                torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
            with annotate(f"step_{step}"):
                train_step(model, x, optimizer)
    finally:
        if on_gpu:
            torch.cuda.synchronize()
            if num_steps > first:
                torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]
    peak = torch.cuda.max_memory_allocated(device) if on_gpu else None
    run = MlpRun(str(device), peak, max(0, num_steps - first) if on_gpu else 0)
    print(describe(run, num_steps))
    return run


def train_step(
    model: torch.nn.Module, x: torch.Tensor, optimizer: torch.optim.Optimizer | None
) -> None:
    model.zero_grad(set_to_none=True)
    with annotate("forward"):
        loss = model(x).mean()
    with annotate("backward"):
        loss.backward()
    if optimizer is not None:
        with annotate("optimizer_step"):
            optimizer.step()


def describe(run: MlpRun, num_steps: int) -> str:
    if run.peak_bytes is None:
        return f"{num_steps} steps on the {run.device}; peak memory is counted on a GPU only"
    seen = f"{run.profiled_steps} of {num_steps} steps between cudaProfilerStart and Stop"
    if not run.profiled_steps:
        seen += f" (they begin at step_{LAST_WARMUP_STEP + 1})"
    return f"{seen} on {run.device}; peak memory {run.peak_bytes / 2**20:.1f} MiB"
