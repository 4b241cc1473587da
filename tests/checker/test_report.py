"""What a report says, and how it reads."""

from __future__ import annotations

import pytest
from checker_support import error_codes, program, report

from vyre.checker import Report, Severity, check, render_diagnostic
from vyre.errors import InvalidProgram
from vyre.ir import Program, build
from vyre.ir import nodes as n
from vyre.ir.buffers import BufferDecl
from vyre.semantics.types import DType


def test_a_legal_program_raises_nothing() -> None:
    found = report("a[gid.x] = 1")
    assert found == Report()
    assert found.ok
    found.raise_if_invalid()


def test_an_illegal_program_raises_with_all_its_errors() -> None:
    found = report("a[0] = 1.0\nb[0] = 1\nx = 2")
    assert not found.ok
    with pytest.raises(InvalidProgram, match=r"V064: the value is f32.*\(2 more errors\)") as raised:
        found.raise_if_invalid()
    assert raised.value.diagnostics == found.errors
    assert raised.value.fix == "cast the value to the element type."


def test_warnings_do_not_make_a_program_illegal() -> None:
    found = report("let x = b[9]")
    assert found.ok
    assert [one.severity for one in found.warnings] == [Severity.WARNING]


def test_errors_come_in_the_order_of_the_program() -> None:
    # Uniformity is known only at the end of the walk, buffers before it; what is unknown silences what follows from it.
    found = report(
        "if lid.x == 0 { barrier }\nlet x = q + 1 * x\nlet y = x + 2.0\na[0] = y\nb[0] = 1\nif wg.x == 0 { grid_sync }",
        "\n buffer 0 a: u32[] readwrite\n buffer 1 b: u32[] read output\n",
    )
    assert error_codes(found) == ["V094", "V010", "V051", "V051", "V056", "V068"]


def test_only_the_first_errors_are_listed() -> None:
    found = report("\n".join(f"b[{k & 7}] = 1" for k in range(500)))
    assert error_codes(found) == ["V056"] * 100
    assert [one.code for one in found.warnings] == ["V092"]


def test_only_the_first_warnings_are_listed() -> None:
    found = report("\n".join("out[16] = 1" for _ in range(500)))
    assert found.ok
    assert [one.code for one in found.warnings] == ["V036"] * 100 + ["V092"]
    assert found.warnings[-1].message == "400 more warnings are not listed."


def test_a_diagnostic_in_its_source() -> None:
    source = program("let i = gid.x\nif i < 4 {\n  barrier\n}", "")
    (found,) = check(source).errors
    assert render_diagnostic(source, found) == (
        "error[V010]: not all invocations of a workgroup reach this barrier together\n"
        " --> p.vyre:4:3\n"
        "  |\n"
        "4 |   barrier\n"
        "  |   ^^^^^^^ here\n"
        "  = fix: move the barrier out of the divergent branch or loop, and guard the work around it instead.\n"
        "  = note: p.vyre:3:4: i < 4 differs between invocations\n"
        "  = note: p.vyre:2:1: 'i' gets its value here\n"
        "  = note: p.vyre:2:9: gid.x differs between invocations"
    )


def test_an_expression_in_its_source() -> None:
    source = program("a[1 + 2] = (7 + 8i32) * 2")
    (found,) = check(source).errors
    assert "| a[1 + 2] = (7 + 8i32) * 2\n   |             ^^^^^^^^ here" in render_diagnostic(source, found)


def test_a_diagnostic_without_a_source() -> None:
    built = Program.new(
        [BufferDecl.read("b", 0, DType.U32, 4)],
        64,
        [build.if_(build.gid() < 4, [build.let("x", 1), build.store("b", 0, build.var("x") + build.load("b", 9))])],
    )
    assert check(built).render(built) == (
        "error[V056]: buffer 'b' is read, and this writes it\n"
        " --> entry[0].then[1]\n"
        "  |\n"
        "  | b[0] = x + b[9]\n"
        "  = fix: declare the buffer readwrite.\n"
        "\n"
        "warning[V036]: index 9 is outside 'b', which has 4 elements\n"
        " --> entry[0].then[1]\n"
        "  |\n"
        "  | b[9]\n"
        "  = fix: use an index below the buffer's count."
    )


def test_a_declaration_with_a_note() -> None:
    source = program("", "\n  buffer 0 a: u32[] read\n  buffer 0 c: u32[] read\n")
    assert check(source).render(source) == (
        "error[V054]: another buffer has the binding 0\n"
        " --> p.vyre:3:3\n"
        "  |\n"
        "3 |   buffer 0 c: u32[] read\n"
        "  |   ^^^^^^^^^^^^^^^^^^^^^^ here\n"
        "  = fix: give it another binding.\n"
        "  = note: p.vyre:2:3: the first buffer with that binding"
    )
    bare = source.with_source(None)
    assert check(bare).render(bare) == (
        "error[V054]: another buffer has the binding 0\n"
        " --> buffer c\n"
        "  = fix: give it another binding.\n"
        "  = note: buffer a: the first buffer with that binding"
    )


def test_a_program_as_large_as_may_be_is_shown_in_time() -> None:
    body = [build.if_(build.lid().eq(0), [build.barrier()]), *([n.Block(())] * 200_000)]
    built = Program.wrapped([], 64, body * 2 + [build.store("q", 0, 1)] * 90)
    text = check(built).render(built)
    assert text.count("error[V010]") == 2
    assert " --> entry[0].body[400002]\n" in text
