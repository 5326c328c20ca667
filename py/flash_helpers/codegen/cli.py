"""Write the C++ sources of a set of kernels into a build folder.

generate_kernel_instantiations.py --out build/generated            (what KERNELS names)
generate_kernel_instantiations.py --out build/generated --kernels prog --kernels 64,32
generate_kernel_instantiations.py --kernels tune --list
"""

import argparse
import functools
from pathlib import Path

from ..base.tool import guarded
from ..kernels.sets import get_kernels_to_build, valid_words
from .generate import generate


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="build folder to fill, such as build/generated")
    parser.add_argument(
        "--kernels",
        action="append",
        default=[],
        metavar="WORD",
        help=f"one of {', '.join(valid_words())}; may be repeated; default: $KERNELS, then all",
    )
    parser.add_argument("--configs-per-unit", type=int, help="default: as their family says")
    parser.add_argument("--list", action="store_true", help="print the kernels, write nothing")
    options = parser.parse_args(arguments)
    if options.out is None and not options.list:
        parser.error("--out is needed (or --list)")
    if "" in options.kernels:
        parser.error(f"--kernels '' is empty: expected one of {', '.join(valid_words())}")
    try:
        configs = get_kernels_to_build(*options.kernels)
        if options.list:
            for config in configs:
                print(f"{config.kernel_name()}  {config.short_form()}")
            return 0
        manifest = generate(options.out, configs, configs_per_unit=options.configs_per_unit)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    print(f"{len(manifest.kernels)} kernels in {len(manifest.units())} units in {options.out}")
    return 0


command = functools.partial(guarded, "generate_kernel_instantiations.py", main)
