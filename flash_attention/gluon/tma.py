"""TMA copies by the names that triton gave them in 3.8.

Before, they were async_copy_global_to_shared and async_copy_shared_to_global; 3.8 knows both, 3.9
only raises an error under the old ones. The arguments that the kernels pass are the same.
"""

from triton.experimental.gluon.language.nvidia.hopper import tma

if hasattr(tma, "async_load"):
    async_load, async_store = tma.async_load, tma.async_store
else:
    async_load, async_store = tma.async_copy_global_to_shared, tma.async_copy_shared_to_global
