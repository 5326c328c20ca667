"""Reading PTX text: comments, scopes, variables, and the way back to source lines."""

from __future__ import annotations

import pytest

from flash_helpers.emulator import PtxSyntaxError
from flash_helpers.emulator.door.source_lines import SourceLines
from flash_helpers.emulator.translator.ptx_parser import Instruction, Label, PtxFile, Scope

MODULE = """
.version 8.0
.target sm_80
.address_size 64
.const .align 4 .b8 bytes[4] = {1, 2, 255, 0};
.global .align 8 .u64 wide[2] = {4294967296, -1};
.extern .shared .align 16 .b8 smem[];
.extern .func  (.param .b32 retval0) vprintf (.param .b64 a);
.visible .entry first( .param .u64 .ptr .global .align 1 first_param_0,
  .param .align 8 .b8 first_param_1[20], .param .u32 first_param_2 )
.maxntid 128, 1, 1
{
  .reg .pred %p<3>;  // .reg .b32 %nothing<9>;
  .reg .b32 %r<8>;
  .shared .align 16 .b8 tile[64];
  .loc 1 10 3
  /* a comment; with { braces */ mov.u32 %r1, %tid.x;
  { .reg .b32 %inner; mov.u32 %inner, 1; add.u32 %r2, %inner, %r1; }
$L_end:
  @!%p1 bra $L_end;
  mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r1,%r2}, {%r3, %r4}, {%r5}, {%r6};
  ret;
}
.entry second() { ret; }
.file 1 "/source/kernel.cu"
.section .debug_str { $L__info: .b8 1,2,3 }
"""


def test_module() -> None:
    module = PtxFile(MODULE).module
    assert list(module.entries) == ["first", "second"]
    assert module.variables["bytes"].initial == bytes([1, 2, 255, 0])
    assert module.variables["wide"].initial == (1 << 32).to_bytes(8, "little") + b"\xff" * 8
    assert module.variables["smem"].extern


def test_entry() -> None:
    entry = PtxFile(MODULE).entry("first")
    assert [(p.name, p.offset, p.n_bytes) for p in entry.parameters] == [
        ("first_param_0", 0, 8),
        ("first_param_1", 8, 20),
        ("first_param_2", 28, 4),
    ]
    assert entry.body.registers == {"%p<": "pred", "%r<": "b32"}
    assert [v.name for v in entry.body.variables] == ["tile"]
    move, scope, label, branch, mma, ret = entry.body.statements
    assert isinstance(move, Instruction) and move.operands == ("%r1", "%tid.x")
    assert MODULE.splitlines()[move.line - 1].strip().endswith("mov.u32 %r1, %tid.x;")
    assert isinstance(scope, Scope) and scope.registers == {"%inner": "b32"}
    assert isinstance(label, Label) and label.name == "$L_end"
    assert isinstance(branch, Instruction) and branch.guard == "!%p1"
    assert isinstance(mma, Instruction) and len(mma.operands) == 4
    assert mma.operands[1] == "{%r3, %r4}"
    assert isinstance(ret, Instruction) and ret.operands == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (".entry k() { mov.u32 %r1, 5 }", "PTX line 1"),
        (".entry k() {\n ret;", "unbalanced braces"),
        (".entry k() { .calltargets a, b; }", "directive not understood"),
    ],
)
def test_syntax_errors_name_the_line(text: str, message: str) -> None:
    with pytest.raises(PtxSyntaxError, match=message):
        PtxFile(text).entry("k")


def test_source_lines_follow_inlining() -> None:
    ptx = """.entry k() {
.loc 1 5 1
a;
.loc 2 40 9, function_name $L_f, inlined_at 1 7 3
.loc 3 99 2, function_name $L_g, inlined_at 2 40 9
b;
}
.file 1 "/s/kernel.cu"
.file 2 "/s/tile.h"
.file 3 "/s/ptx.h"
"""
    lines = SourceLines(ptx)
    assert lines.locate(3).frames == (("/s/kernel.cu", 5),)
    assert lines.locate(6).frames == (("/s/ptx.h", 99), ("/s/tile.h", 40), ("/s/kernel.cu", 7))
    assert str(lines.locate(6)) == (
        "ptx.h:99, inlined at tile.h:40, inlined at kernel.cu:7 (PTX line 6)"
    )
    assert str(SourceLines("a;\n").locate(1)) == "PTX line 1"
