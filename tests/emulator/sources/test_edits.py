"""What the generator of source bugs makes of small texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from .edits import edits_of
from .mutants import SourceMutant, chosen, headers_of, mutants_of
from .tokens import statements_of, tokens_of

INCLUDE = Path(__file__).resolve().parents[3] / "csrc" / "include"


def changed(source: str, kind: str) -> list[str]:
    """What `source` becomes by each change of a kind."""
    return [
        source[: edit.start] + edit.text + source[edit.end :]
        for edit in edits_of(source)
        if edit.kind == kind
    ]


@pytest.mark.parametrize(
    ("kind", "source", "wanted"),
    [
        ("operator", "x = a + b;", ["x = a - b;"]),
        ("operator", "x = a < b && c;", ["x = a <= b && c;", "x = a < b || c;"]),
        ("operator", "f<kA>(-x, &y, *z);", []),  # brackets of a template, signs, an address
        ("operator", "++i;", ["--i;"]),
        ("negation dropped", "if (!x) f();", ["if (x) f();"]),
        ("constant", "wait<1>();", ["wait<0>();", "wait<2>();"]),
        ("constant", "f(0, 3u);", ["f(1, 3u);", "f(0, 2u);", "f(0, 4u);", "f(0, 6u);"]),
        ("constant", "any(0xffffffffu, p);", ["any(0x0000ffffu, p);"]),
        ("constant", "x = 8.0f;", ["x = 16.0f;"]),
        ("name", "f(k_full); g(v_full);", ["f(v_full); g(v_full);", "f(k_full); g(k_full);"]),
        ("name", "f(k_full);", []),  # there is no other
        ("name", "int kKOffset, kVOffset;",
         ["int kVOffset, kVOffset;", "int kKOffset, kKOffset;"]),
        ("name", "issue<true>();", ["issue<false>();"]),
        ("name", "x = max(a, b);", ["x = min(a, b);"]),
        ("narrowed", "const int64_t x = y;", ["const int x = y;"]),
        ("phase", "wait(b, ring.parity);", ["wait(b, ring.parity ^ 1);"]),
        ("phase", "wait(b, ring.parity ^ 1);", []),  # there the constant is changed
        ("condition negated", "if (a == b) f();", ["if (!(a == b)) f();"]),
        ("condition negated", "if constexpr (kX) f();", ["if constexpr (!(kX)) f();"]),
        ("arms swapped", "x = a ? b : f(c, d);", ["x = a ? f(c, d) : b;"]),
        ("arms swapped", "f(a ? b : c, d);", ["f(a ? c : b, d);"]),
        ("arms swapped", "x = a ? b : c ? d : e;",
         ["x = a ? c ? d : e : b;", "x = a ? b : c ? e : d;"]),
        ("deleted", "{ f(); int x = g(); return x; }", ["{  int x = g(); return x; }"]),
        ("deleted", "if (a) f();", ["if (a) ;"]),
        ("deleted", "{ if (a) return; }", ["{ if (a) ; }"]),
        ("deleted", "x.template g<0>(y);", [""]),
        ("deleted", "{ Rows rows; Lane lane(x); T* p = f(); }", []),  # declarations
        ("order swapped", "{ f(); g(); }", ["{ g(); f(); }"]),
        ("order swapped", "{ f(); if (a) g(); }", []),
        ("order swapped", "{ f();\n  x += 1; }", ["{ x += 1;\n  f(); }"]),
        ("arguments swapped", "f(a, b + 1);", ["f(b + 1, a);"]),
        ("arguments swapped", "fma_rn(a, b, c);", ["fma_rn(a, c, b);"]),
        ("arguments swapped", 'asm("x;" : "=r"(a) : "r"(b), "r"(c), "r"(d), "r"(e) : "memory");',
         ['asm("x;" : "=r"(a) : "r"(b), "r"(d), "r"(c), "r"(e) : "memory");']),
        ("arguments swapped", "void f(int a, const T& b);", []),  # parameters
        ("operands swapped", 'asm("mma {%0, %1};");', ['asm("mma {%1, %0};");']),
        ("modifier dropped", 'asm("ldmatrix.x4.trans %0;");', ['asm("ldmatrix.x4 %0;");']),
    ],
)  # fmt: skip
def test_a_kind(kind: str, source: str, wanted: list[str]) -> None:
    assert changed(source, kind) == wanted


@pytest.mark.parametrize(
    "source",
    ["// a + 1", "/* a + 1\n b */", "#define A(x) x + 1 \\\n  + 2", "static_assert(a + 1 == 2);",
     "template <int kA = 1> struct S;", '"text"', "using A = B<c>;"],
)  # fmt: skip
def test_what_is_no_code_stays(source: str) -> None:
    assert edits_of(source) == []


def test_statements() -> None:
    source = """struct A {
  void f() const {
    g();
    if (a) { h(); } else h(2);
    each([&](auto i) { k(i); });
    int x[2] = {0, 1};
  }
};"""
    tokens = tokens_of(source)
    texts = [
        source[tokens[s.first].start : tokens[s.last].end]
        for s in sorted(statements_of(tokens), key=lambda s: s.first)
    ]
    assert texts == ["g();", "h();", "h(2);", "k(i);", "int x[2] = {0, 1};"]


HEADER = """namespace a {
FLASH_DEVICE void f(int x) {
  g(x + 1);
}
FLASH_DEVICE int h() {
  return x(1,
           2) + 3;
}
}
"""


def test_a_mutant_says_where_it_is() -> None:
    found = {(m.function, m.kind, m.before, m.after, m.line) for m in mutants_of("a.h", HEADER)}
    assert ("f", "operator", "g(x + 1);", "g(x - 1);", 3) in found
    assert ("f", "deleted", "g(x + 1);", "", 3) in found
    before, after = "return x(1, 2) + 3;", "return x(2, 1) + 3;"
    assert ("h", "arguments swapped", before, after, 6) in found
    assert len({m.text for m in mutants_of("a.h", HEADER)}) == len(mutants_of("a.h", HEADER))


def test_the_choice_depends_on_nothing_else() -> None:
    def made(source: str) -> list[SourceMutant]:
        return chosen(mutants_of("a.h", source), "seed", {"": 2, "constant": 3})

    some = made(HEADER)
    kinds = [mutant.kind for mutant in some]
    assert kinds.count("constant") == 3 and max(map(kinds.count, {*kinds} - {"constant"})) <= 2
    assert made(HEADER) == some
    below = made("// a line more\n" + HEADER)
    assert [mutant.key for mutant in below] == [mutant.key for mutant in some]
    other = chosen(mutants_of("a.h", HEADER), "another seed", {"": 2, "constant": 3})
    assert other != some


def test_headers_are_those_that_a_family_reads() -> None:
    unit = '#include "flash/sm90/forward/forward.cuh"\n'
    names = headers_of([unit], "sm90", INCLUDE)
    assert "sm90/forward/consumer.cuh" in names and "tile/visible.cuh" in names
    assert not any(name.startswith(("sm80", "core")) or name.endswith("args.h") for name in names)
    assert "ptx/mma.cuh" not in names
