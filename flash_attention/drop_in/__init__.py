"""The kernels for programs that call something else: PyTorch's scaled_dot_product_attention, and
models of transformers."""
