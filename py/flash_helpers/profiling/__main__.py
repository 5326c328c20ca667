"""`python -m flash_helpers.profiling`, the earlier name of `python -m flash_lab.profiling`."""

import runpy

runpy.run_module("flash_lab.profiling", run_name="__main__", alter_sys=True)
