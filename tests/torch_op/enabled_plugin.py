"""A plugin of pytest: scaled_dot_product_attention with these kernels in the whole run, on CPU
tensors as well where there is no GPU."""

import torch

import flash_attention


def pytest_configure() -> None:
    flash_attention.enable(emulator=not torch.cuda.is_available())


def pytest_unconfigure() -> None:
    flash_attention.disable()
