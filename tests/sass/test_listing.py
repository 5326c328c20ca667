"""Reading, classifying and comparing machine code, on a listing small enough to count by hand."""

from __future__ import annotations

import pytest

from flash_lab.sass.classes import (
    CLASSES,
    OTHER,
    class_of,
    count_classes,
    count_matching,
    count_opcodes,
)
from flash_lab.sass.compare import Comparison, normalised
from flash_lab.sass.listing import Instruction, Listing, parse_listings, parse_usage

# What cuobjdump 13.0 prints, encodings shortened.
TEXT = """
Fatbin elf code:
================
arch = sm_90a
code version = [1,8]

\tcode for sm_90a
\t\tFunction : first
\t.headerflags\t@"EF_CUDA_64BIT_ADDRESS EF_CUDA_SM90"
        /*0000*/                   LDC R1, c[0x0][0x28] ;            /* 0x00000a00ff017b82 */
                                                                     /* 0x000ff00000000800 */
        /*0010*/                   CS2R R4, SRZ ;                    /* 0x0000000000047805 */
        /*0020*/                   IMAD.MOV.U32 R2, RZ, RZ, R4 ;                /* 0x0 */
        /*0030*/                   LDSM.16.MT88.4 R8, [R2+0x400] ;              /* 0x0 */
        /*0040*/                   HMMA.16816.F32 R12, R8, R10, RZ ;            /* 0x0 */
        /*0050*/                   MUFU.EX2 R3, R3 ;                            /* 0x0 */
        /*0060*/                   MUFU.RCP R3, R3 ;                            /* 0x0 */
        /*0070*/              @!P0 BRA 0x30 ;                                   /* 0x0 */
        /*0080*/                   STL [R1], R3 ;                               /* 0x0 */
        /*0090*/                   FROBNICATE.X R1 ;                            /* 0x0 */
        /*00a0*/                   IADD3 R5, R5, -0x1, RZ ;                     /* 0x0 */
        /*00b0*/         @P1       BRA 0xa0 ;                                   /* 0x0 */
        /*00c0*/                   EXIT ;                                       /* 0x0 */
        /*00d0*/                   BRA 0xd0;                                    /* 0x0 */
        /*00e0*/                   NOP;                                         /* 0x0 */
        /*00f0*/                   NOP;                                         /* 0x0 */
\t\t..........

\t\tFunction : second
        /*0000*/                   EXIT ;                                       /* 0x0 */

\tcode for sm_80
\t\tFunction : first
        /*0000*/                   EXIT ;                                       /* 0x0 */
"""


@pytest.fixture
def first() -> Listing:
    return parse_listings(TEXT)[0]


def test_every_kernel_of_every_architecture(first: Listing) -> None:
    found = [(x.name, x.architecture, len(x.instructions)) for x in parse_listings(TEXT)]
    assert found == [("first", "sm_90a", 14), ("second", "sm_90a", 1), ("first", "sm_80", 1)]
    assert first.instructions[-1].opcode == "BRA"  # the padding behind the trap is gone
    branch = first.instructions[7]
    assert (branch.predicate, branch.opcode, branch.target) == ("@!P0", "BRA", 0x30)
    assert str(first.instructions[3]) == "LDSM.16.MT88.4 R8, [R2+0x400]"


def test_the_main_loop_is_the_one_with_the_matrix_instructions(first: Listing) -> None:
    assert [i.address for i in first.loop] == [0x30, 0x40, 0x50, 0x60, 0x70]
    assert parse_listings(TEXT)[1].loop == ()
    # A loop over tiles around it changes nothing, though it has more matrix instructions.
    outer = TEXT.replace("EXIT ;", "BRA 0x10 ;", 1).replace(
        "FROBNICATE.X R1", "HMMA.16816.F32 R0", 1
    )
    assert [i.address for i in parse_listings(outer)[0].loop] == [0x30, 0x40, 0x50, 0x60, 0x70]
    with pytest.raises(ValueError, match="expected kernel or loop"):
        first.part("prologue")


def test_a_kernel_without_instructions_is_an_error() -> None:
    with pytest.raises(ValueError, match="names lost"):
        parse_listings("code for sm_90a\n\t\tFunction : lost\n")


def test_counts(first: Listing) -> None:
    counts = count_classes(first.instructions)
    nonzero = {name: n for name, n in counts.items() if n}
    assert nonzero == {
        "matrix": 1, "ldmatrix": 1, "global": 1, "spill": 1, "exponential": 1, "special": 1,
        "clear": 1, "move": 1, "integer": 1, "control": 4, OTHER: 1,
    }  # fmt: skip
    assert sum(counts.values()) == len(first.instructions)
    assert count_opcodes(first.instructions)["IMAD.MOV"] == 1
    assert count_matching(first.instructions, "MUFU") == 2
    assert count_matching(first.instructions, "MUFU.EX2+spill") == 2
    for wrong in ("mufu", "", "MUFU+"):
        with pytest.raises(ValueError, match="neither an opcode nor"):
            count_matching(first.instructions, wrong)


def test_no_opcode_has_two_classes() -> None:
    patterns = [pattern for found in CLASSES.values() for pattern in found]
    assert len(patterns) == len(set(patterns))
    imad = Instruction(0, "", "IMAD.WIDE.U32", "")
    assert class_of(imad) == "integer" and not imad.matches("IMAD.WI")


def test_clean_text_has_labels_and_the_loop(first: Listing) -> None:
    lines = first.text().splitlines()
    assert lines[0] == "// first (sm_90a), 14 instructions"
    assert "/*" not in first.text()
    (begin,) = [n for n, line in enumerate(lines) if line.endswith("// main loop begins")]
    assert lines[begin - 1] == ".L0:" and "LDSM" in lines[begin]
    assert any("BRA" in line and ".L0" in line for line in lines)


def test_register_numbers_are_no_difference(first: Listing) -> None:
    renamed = TEXT.replace("R8", "R88").replace("0x30", "0x0030")
    other = parse_listings(renamed)[0]
    comparison = Comparison(first, other, "loop")
    assert comparison.same_but_for_registers and not comparison.identical
    assert comparison.opcodes == [] and comparison.diff() == []
    assert normalised(first.loop)[-1] == "@!P BRA …"


def test_differences_are_counted_and_shown(first: Listing) -> None:
    other = parse_listings(TEXT.replace("MUFU.RCP R3, R3", "FMUL R3, R3, R3"))[0]
    comparison = Comparison(first, other, "loop")
    assert [(c.name, c.difference) for c in comparison.opcodes] == [("FMUL", 1), ("MUFU", -1)]
    assert {c.name: c.difference for c in comparison.classes}["special"] == -1
    assert "-MUFU.RCP R, R" in comparison.diff() and "+FMUL R, R, R" in comparison.diff()


USAGE = """
Fatbin elf code:
================
arch = sm_80

Resource usage:
 Common:
  GLOBAL:0
 Function first:
  REG:205 STACK:16 SHARED:1024 LOCAL:0 CONSTANT[0]:512 TEXTURE:0 SURFACE:0 SAMPLER:0
"""


def test_usage() -> None:
    (usage,) = parse_usage(USAGE)
    assert (usage.kernel, usage.architecture, usage.registers) == ("first", "sm_80", 205)
    assert (usage.stack_bytes, usage.shared_bytes, usage.local_bytes) == (16, 1024, 0)
    with pytest.raises(ValueError, match="no STACK for first"):
        parse_usage(USAGE.replace("STACK:16 ", ""))
