"""What instructions are for, and how many there are of each kind."""

from collections import Counter
from collections.abc import Iterable, Sequence

from .listing import Instruction, Listing

# Class -> opcodes, each with the modifiers that tell it apart. The first match counts, so the
# narrower patterns stand before the wider ones.
CLASSES: dict[str, tuple[str, ...]] = {
    "matrix": ("HMMA", "HGMMA", "QGMMA", "IMMA", "IGMMA", "DMMA"),
    "ldmatrix": ("LDSM",),
    "async copy": (
        "LDGSTS", "UTMALDG", "UTMASTG", "UTMAREDG", "UTMACMDFLUSH", "UTMAPF", "UTMACCTL", "UBLKCP",
    ),
    "shared": ("LDS", "STS", "STSM", "ATOMS"),
    "global": ("LDG", "STG", "LD", "ST", "RED", "REDG", "ATOM", "ATOMG", "LDC", "ULDC", "LDCU"),
    "spill": ("LDL", "STL"),
    "exponential": ("MUFU.EX2",),
    "special": ("MUFU",),
    "fp32": ("FFMA", "FMUL", "FADD", "FMNMX", "FSETP", "FSEL", "FSET", "FCHK", "FSWZADD"),
    "conversion": ("F2F", "F2FP", "I2F", "F2I", "I2FP", "FRND", "HADD2", "HMUL2", "HFMA2"),
    "clear": ("CS2R",),
    "move": ("MOV", "IMAD.MOV", "UMOV", "R2UR", "S2R", "S2UR", "R2P", "P2R", "UR2R"),
    "integer": (
        "IADD3", "IADD", "IMAD", "LOP3", "LOP", "SHF", "SHL", "SHR", "LEA", "ISETP", "IMNMX",
        "VIADD", "VIMNMX", "VIADDMNMX", "IABS", "SEL", "PRMT", "BMSK", "SGXT", "POPC", "FLO",
        "PLOP3", "I2I", "IDP", "BREV", "ISCADD",
    ),
    "uniform": (
        "UIADD3", "UIMAD", "ULOP3", "USHF", "ULEA", "UISETP", "USEL", "UPRMT", "UPLOP3", "UFLO",
        "UBREV", "UPOPC", "USGXT", "VOTEU", "UVIADD",
    ),
    "warp": ("SHFL", "VOTE", "MATCH", "REDUX"),
    "barrier": (
        "BAR", "DEPBAR", "LDGDEPBAR", "WARPSYNC", "SYNCS", "MEMBAR", "FENCE", "ERRBAR", "CCTL",
        "ARRIVES", "WARPGROUP", "UCGABAR_ARV", "UCGABAR_WAIT", "NANOSLEEP", "ELECT", "USETMAXREG",
    ),
    "control": (
        "BRA", "BRX", "JMP", "EXIT", "CALL", "RET", "BSSY", "BSYNC", "BREAK", "BMOV", "NOP",
        "YIELD", "KILL", "LEPC", "RPCMOV", "ACQBULK", "PREEXIT", "BPT",
    ),
}  # fmt: skip
OTHER = "other"  # an opcode that no class names: shown, never lost
_CLASS_OF = {pattern: name for name, patterns in CLASSES.items() for pattern in patterns}


def class_of(instruction: Instruction) -> str:
    words = instruction.opcode.split(".")
    for length in range(min(2, len(words)), 0, -1):
        found = _CLASS_OF.get(".".join(words[:length]))
        if found:
            return found
    return OTHER


def count_classes(instructions: Iterable[Instruction]) -> dict[str, int]:
    """Class -> instructions, in the order of CLASSES, all of them present."""
    counts = Counter(map(class_of, instructions))
    return {name: counts[name] for name in (*CLASSES, OTHER)}


def count_opcodes(instructions: Iterable[Instruction]) -> dict[str, int]:
    """Base opcode -> instructions, but moves by IMAD on their own; most first."""
    counts = Counter("IMAD.MOV" if i.matches("IMAD.MOV") else i.base for i in instructions)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def count_matching(instructions: Sequence[Instruction], what: str) -> int:
    """`what`: class names and opcode patterns between `+`: `move`, `LDGSTS.E.BYPASS`, `LDL+STL`."""
    total = 0
    for word in what.split("+"):
        if word in CLASSES or word == OTHER:
            total += sum(class_of(i) == word for i in instructions)
        elif word and word == word.upper():
            total += sum(i.matches(word) for i in instructions)
        else:
            known = ", ".join((*CLASSES, OTHER))
            raise ValueError(f"{word!r} is neither an opcode nor one of the classes {known}")
    return total


def summary(listing: Listing) -> dict[str, int]:
    """Instructions of the kernel and of its main loop, and the loop's by class."""
    loop = {f"loop {name}": n for name, n in count_classes(listing.loop).items()}
    return {"instructions": len(listing.instructions), "loop": len(listing.loop), **loop}
