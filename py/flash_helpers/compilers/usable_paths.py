"""Paths that every tool of a build reads as they are written.

CMake, ninja, the shell and nvcc hand paths on to each other as text, each with its own rules. Some
characters get lost on the way: a build fails after many lines of nonsense, or compiles everything
again every time, or runs what stands between $( and ). What is refused here was tried, with CMake
3.25 and 4.4, ninja 1.11 and 1.13, nvcc 13.0; blanks, commas, quotes (') and all scripts work.
"""

import unicodedata
from pathlib import Path

from .errors import BuildError

BUILD_REFUSED = '"$\\`;[]|'
# Headers of compilers and Python are listed as dependencies, in which ninja takes these for the end
# of a name; LIBRARY_PATH is a list with colons.
TOOL_REFUSED = BUILD_REFUSED + "'&?#*<>^:"
# nvcc puts its arguments between double quotes and gives them to a shell.
NVCC_REFUSED = '"$`'
NVCC_TEMPORARY_REFUSED = NVCC_REFUSED + ","  # one step gets its files as key=value,key=value


def check_path(what: str, path: Path | str, refused: str = BUILD_REFUSED) -> None:
    """Raises BuildError, in one line, if the path has one of the characters `refused`, a control
    character, or bytes that are not UTF-8."""
    text = str(path)
    for character in text:
        kind = unicodedata.category(character)
        if character in refused or kind in ("Cc", "Cs"):
            # Cs is how Python shows undecodable bytes.
            name = "a byte that is not UTF-8" if kind == "Cs" else repr(character)
            raise BuildError(
                f"{what} is {text!r}: {name} in a path is misread by CMake, ninja, "
                f"nvcc or the shell. Use a place without {' '.join(refused)}, control characters "
                "and bytes that are not UTF-8"
            )


def nvcc_folder(option: str, folder: Path | str) -> str:
    """-I or -L for nvcc, which splits lists at commas and takes quotes off, but does neither to
    what the host compiler is given in quotes."""
    plain = not set("',").intersection(str(folder))
    return f"{option}{folder}" if plain else f'-Xcompiler={option}"{folder}"'
