"""What people are told about a text that is no program: the place, the reason, and what to write instead."""

from __future__ import annotations

from array import array

import pytest

from vyre.errors import ParseError
from vyre.ir.parser import parse, parse_expression
from vyre.ir.places import SourceMap, Span
from vyre.ir.render import render


def refused(text: str) -> ParseError:
    with pytest.raises(ParseError) as caught:
        parse(text, "bad.vyre")
    return caught.value


@pytest.mark.parametrize(
    ("body", "line", "column", "message", "fix"),
    [
        ("grid_snc", 2, 1, "'grid_snc' does not begin a statement", "did you mean 'grid_sync'?"),
        ("brk", 2, 1, "does not begin a statement", "did you mean 'break'?"),
        ("asyncload(a, b, 0, 4, \"t\")", 2, 1, "does not begin", "did you mean 'async_load'?"),
        ("qqqq", 2, 1, "does not begin a statement", "let x = 1"),
        ("let x 1", 2, 7, "expected '='", "let x = 1"),
        ("let = 1", 2, 5, "expected the variable's name", "letters"),
        ("let if = 1", 2, 5, "reserved word", "'if_'"),
        ("let u32 = 1", 2, 5, "reserved word", "'u32_'"),
        ("x = ", 2, 5, "expected an expression, found the end of the line", "number"),
        ("x = a +", 2, 8, "expected an operand", "parentheses"),
        ("x = (a", 2, 5, "never closed with ')'", "')'"),
        ("x = y + a[(b + 1\ny = 2\n", 3, 1, "expected an operator or ')', found 'y'", "')'"),
        ("if min(a, { }", 2, 4, "never closed with ')'", "')'"),
        ("a[1", 3, 1, "expected ']'", "close the index"),
        ("x = a)", 2, 6, "expected the end of the statement, found ')'", "';'"),
        ("x = (a]", 2, 7, "expected an operator or ')', found ']'", "')'"),
        ("x = a[1)", 2, 8, "expected an operator or ']', found ')'", "']'"),
        ("x = min(a b)", 2, 11, "expected an operator, ',' or ')'", "operator"),
        ("x = sqroot(1.0)", 2, 5, "'sqroot' is not a function", "'sqrt'"),
        ("x = frobnicate(1.0)", 2, 5, "is not a function", "call("),
        ("x = min(1)", 2, 10, "min needs 2 arguments, not 1", "min(left, right)"),
        ("x = min(1, 2, 3)", 2, 15, "takes 2 arguments", "min(left, right)"),
        ("x = atomic_add(a, 0)", 2, 20, "needs 3 arguments", "atomic_add(buffer, index, value[, order])"),
        ("x = atomic_add(a, 0, 1, relax)", 2, 25, "not a memory order", "'relaxed'"),
        ("x = atomic_add(a[0], 1)", 2, 17, "expected ',' or ')'", "atomic_add(buffer, index"),
        ("x = bitcast(f23, 1)", 2, 13, "'f23' is not a type", "'f32'"),
        ("x = len(1)", 2, 9, "expected the name of a buffer", "letters"),
        ("x = u32", 2, 5, "reserved word", "'u32_'"),
        ("x = gid.w", 2, 8, "expected the end of the line", "gid.x"),
        ('x = "text"', 2, 5, "expected an expression", "call("),
        ('x = call("text)', 2, 10, "does not end on its line", "close it"),
        ('resume("\\q")', 2, 8, "escape", "\\n"),
        ('resume("\\u{110000}")', 2, 8, "escape", "10ffff"),
        ('resume("\\u{d800}")', 2, 8, "surrogate", "whole character"),
        ('resume("\ud800")', 2, 8, "surrogate", "whole character"),
        ('opaque("k", x"0")', 2, 13, "pairs of hexadecimal digits", 'x"00ff"'),
        ("atomic_add(a, 0, 1)", 2, 1, "is an expression, not a statement", "let x = atomic_add(...)"),
        ("x = resume(1)", 2, 5, "is a statement, not an expression", "line of its own"),
        ("a[0]", 2, 5, "expected '='", "a[i] = x"),
        ("if x", 2, 5, "expected '{'", "same line"),
        ("if x\n{ }", 2, 5, "expected '{'", "same line"),
        ("else { }", 2, 1, "an else without an if", "if x"),
        ("if x { } else y = 1", 2, 15, "expected '{'", "else if"),
        ("for i in 0 : n { }", 2, 12, "expected '..'", "0 .. n"),
        ("for i = 0", 2, 7, "expected 'in'", "0 .. n"),
        ("x = 1 y = 2", 2, 7, "expected the end of the statement, found 'y'", "';'"),
        ("{ x = 1 }", 2, 1, "expected a statement", "let x = 1"),
        ("x = 1 }", 3, 1, "expected the end of the text", "one program"),
        ("block { x = 1", 1, 24, "a '{' is opened here and never closed", "'}'"),
        ("barrier(acq)", 2, 9, "not a memory order", "'acquire'"),
        ("buffer 0 a: u32 read", 2, 17, "expected '['", "u32[]"),
        ("buffer 0 a: u32[]", 2, 18, "expected the buffer's access", "readwrite"),
        ("buffer 0 a: u32[] reed", 2, 19, "'reed' is not something a buffer can be", "'read'"),
        ("buffer 0 a: u32[] read uniform", 2, 24, "after another one of its kind", "once"),
        ("buffer 0 a: u32[] read output output", 2, 31, "after another one of its kind", "once"),
        ("buffer a: u32[] read", 2, 8, "expected the buffer's binding", "whole number"),
        ("buffer 0 a: u32[99999999999999999999] read", 2, 17, "too large", "9,223,372"),
        ("x = 1\nbuffer 0 a: u32[] read", 3, 1, "declared after a statement", "before the first statement"),
        ("x = \u00a01", 2, 5, "(U+00A0)", "number"),
        ("x = @", 2, 5, "found '@'", "number"),
        ("é = 1", 2, 1, "found 'é'", "let x = 1"),
    ],
)  # fmt: skip
def test_an_error_names_the_place_and_the_fix(body: str, line: int, column: int, message: str, fix: str) -> None:
    error = refused(f"program p(workgroup 1) {{\n{body}\n}}")
    assert (error.line, error.column) == (line, column)
    assert message in error.message
    assert fix in error.fix
    assert error.fix


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("", 1, 1, "expected 'program', found the end of the text"),
        ("  # nothing\n\n", 3, 1, "expected 'program'"),
        ("prog p", 1, 1, "expected 'program', found 'prog'"),
        ("program 1", 1, 9, "expected the program's name"),
        ("program p {", 1, 11, "expected '('"),
        ("program p(64)", 1, 11, "expected 'workgroup'"),
        ("program p(workgroup)", 1, 20, "expected the size of a workgroup"),
        ("program p(workgroup 1, 2, 3, 4)", 1, 30, "expected ')'"),
        ("program p(workgroup 1i32)", 1, 21, "expected the size of a workgroup"),
        ("program p(workgroup subgroup 1)", 1, 21, "expected the size of a workgroup"),
        ("program p(workgroup 1, subgroup 8, 8) {}", 1, 34, "expected ')'"),
        ("program p(workgroup 1)\n{}", 1, 23, "expected '{', found the end of the line"),
        ("program p(workgroup 1) {", 1, 24, "never closed"),
        ("program p(workgroup 1) {} program q(workgroup 1) {}", 1, 27, "expected the end of the text"),
    ],
)
def test_an_error_of_the_frame_names_its_place(text: str, line: int, column: int, message: str) -> None:
    error = refused(text)
    assert (error.line, error.column) == (line, column)
    assert message in error.message


def test_an_expression_text_holds_one_expression() -> None:
    for text in ("", "a b", "a }", "a; b", "(a", "a)"):
        with pytest.raises(ParseError):
            parse_expression(text)


def test_a_parse_error_is_shown_with_its_line() -> None:
    error = refused("program p(workgroup 1) {\n  block {\n    let x = 300u8 + 1  # too much\n  }\n}\n")
    assert str(error) == (
        "error[parse]: 300u8 does not fit u8 (0 to 255)\n"
        " --> bad.vyre:3:13\n"
        "  |\n"
        "3 |     let x = 300u8 + 1  # too much\n"
        "  |             ^^^^^ here\n"
        "  = fix: write it as 300u16."
    )


def show(text: str, start: int, stop: int) -> list[str]:
    source = SourceMap("f.vyre", text, array("i"), array("i"), array("i"), array("i"))
    shown = render(source, Span(start, stop), "warning", "V036", "a message.", "a fix")
    lines = shown.split("\n")
    assert lines[0] == "warning[V036]: a message"
    assert lines[2].endswith(" |")
    assert lines[-1].endswith(" = fix: a fix")
    assert not any(line != line.rstrip() for line in lines)
    return [lines[1], *lines[3:-1]]


def test_line_numbers_widen_the_margin() -> None:
    text = "\n" * 11 + "    barrier\n"
    assert show(text, 15, 22) == ["  --> f.vyre:12:5", "12 |     barrier", "   |     ^^^^^^^ here"]


def test_tabs_and_wide_characters_keep_the_carets_in_place() -> None:
    assert show("\tlet\tx", 5, 6) == [" --> f.vyre:1:6", "1 |     let    x", "  |            ^ here"]
    assert show("日本 = x", 0, 2) == [" --> f.vyre:1:1", "1 | 日本 = x", "  | ^^^^ here"]
    assert show("e\u0301x", 2, 3) == [" --> f.vyre:1:3", "1 | e\u0301x", "  |  ^ here"]
    assert show("a\x1b[31m\u202eb", 7, 8) == [" --> f.vyre:1:8", "1 | a\ufffd[31m\ufffdb", "  |        ^ here"]


def test_a_span_over_several_lines_underlines_the_first() -> None:
    assert show("if x {\r\n  y\n}", 0, 13) == [" --> f.vyre:1:1", "1 | if x {", "  | ^^^^^^ here"]


def test_an_empty_span_and_the_end_of_the_text_get_one_caret() -> None:
    assert show("ab", 1, 1) == [" --> f.vyre:1:2", "1 | ab", "  |  ^ here"]
    assert show("ab\n", 3, 3) == [" --> f.vyre:2:1", "2 |", "  | ^ here"]
    assert show("ab", 2, 2) == [" --> f.vyre:1:3", "1 | ab", "  |   ^ here"]
    assert show("ab\ncd", 2, 3) == [" --> f.vyre:1:3", "1 | ab", "  |   ^ here"]
    assert show("ab", 90, 95) == [" --> f.vyre:1:3", "1 | ab", "  |   ^ here"]


def test_a_long_line_is_clipped_around_the_span() -> None:
    _, line, carets = show("a" * 500 + "HERE" + "b" * 500, 500, 504)
    assert line == "1 | …" + "a" * 30 + "HERE" + "b" * 66 + "…"
    assert carets == "  | " + " " * 31 + "^^^^ here"
    _, line, carets = show("HERE" + "b" * 500, 0, 400)
    assert line == "1 | HERE" + "b" * 96 + "…"
    assert carets == "  | " + "^" * 100 + " here"
