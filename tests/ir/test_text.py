"""The text form: what is printed reads back exactly, and people's spelling variants read as what they mean."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from text_samples import EVERYTHING, NAMES, REACH, STRINGS, random_program

from vyre.errors import InvalidProgram, ParseError
from vyre.ir import build as b
from vyre.ir import lexer, limits, walk
from vyre.ir import nodes as n
from vyre.ir.buffers import Access, BufferDecl
from vyre.ir.forms import EXPRESSION_FORMS, STATEMENT_FORMS
from vyre.ir.literals import read_string, write_string
from vyre.ir.names import KEYWORDS, RESERVED, is_identifier
from vyre.ir.parser import parse, parse_expression
from vyre.ir.places import Place
from vyre.ir.printer import print_expression, print_program, print_statements
from vyre.ir.program import Program
from vyre.semantics.operators import BINARY, UNARY
from vyre.semantics.types import DType

SOME_SEEDS = range(400)


def assert_round_trip(program: Program) -> None:
    text = print_program(program)
    again = parse(text)
    assert again == program
    assert print_program(again) == text
    assert not any(line != line.rstrip() for line in text.split("\n"))


def test_the_printed_form_of_a_program_is_pretty_and_stable() -> None:
    assert print_program(parse(REACH)) == REACH
    assert str(parse(REACH)) == REACH


def test_every_node_class_round_trips() -> None:
    program = parse(EVERYTHING)
    assert_round_trip(program)
    kinds = set(program.stats().kinds)
    assert kinds == {cls.__name__ for cls in n.EXPRESSION_CLASSES + n.STATEMENT_CLASSES}


@pytest.mark.parametrize("seed", SOME_SEEDS)
def test_any_program_round_trips(seed: int) -> None:
    assert_round_trip(random_program(seed))


def test_every_operator_round_trips() -> None:
    x, y = n.Var("x"), n.Var("y")
    for op in BINARY:
        for inner in BINARY:
            for tree in (n.BinOp(op, n.BinOp(inner, x, y), x), n.BinOp(op, x, n.BinOp(inner, x, y))):
                assert parse_expression(print_expression(tree)) == tree
    for op in UNARY:
        for inner in (*UNARY, *BINARY):
            operand = n.UnOp(inner, x) if inner in UNARY else n.BinOp(inner, x, y)
            tree = n.UnOp(op, operand)
            assert parse_expression(print_expression(tree)) == tree


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("a - (b - c)", "a - (b - c)"),
        ("(a - b) - c", "a - b - c"),
        ("((a)) * (b + c)", "a * (b + c)"),
        ("(a * b) + c", "a * b + c"),
        ("(a >> 5) & 1 == (1)", "a >> 5 & 1 == 1"),
        ("-(a + b)", "-(a + b)"),
        ("(-a) + b", "-a + b"),
        ("a--b", "a - -b"),
        ("- - a", "--a"),
        ("-5i32", "-5i32"),
        ("- 5i32", "-5i32"),
        ("(-\n5i32)", "-5i32"),
        ("-(5i32)", "-(5i32)"),
        ("-(-5i32)", "-(-5i32)"),
        ("~-5i32", "~-5i32"),
        ("a-5", "a - 5"),
        ("a - -5i32", "a - -5i32"),
        ("-a[1]", "-a[1]"),
        ("-inf", "-inf"),
        ("-(inf)", "-(inf)"),
        ("-nan", "-(nan)"),
        ("!!x", "!!x"),
        ("min(a, b,)", "min(a, b)"),
        ("min\n(\na\n,\nb\n)", "min(a, b)"),
        ("a\n+\nb # why", "a + b"),
        ("gid\n.x", "gid.x"),
        ("gid", "gid"),
        ("gid + gid.x", "gid + gid.x"),
        ("atomic_add(a, 0, 1, seq_cst)", "atomic_add(a, 0, 1)"),
        ("atomic_load(relaxed, relaxed, relaxed)", "atomic_load(relaxed, relaxed, relaxed)"),
        ("min[min(min, 1)]", "min[min(min, 1)]"),
        ("0x1e-3", "30 - 3"),
        ("1e-3", "0.001"),
        ('opaque("k", x"AB")', 'opaque("k", x"ab")'),
        ("7f32 + 7f64", "7.0 + 7.0f64"),
    ],
)
def test_an_expression_prints_with_the_fewest_parentheses(text: str, printed: str) -> None:
    expression = parse_expression(text)
    assert print_expression(expression) == printed
    assert parse_expression(printed) == expression


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("if a { x = 1 } else { if b { x = 2 } }", "if a { x = 1 } else if b { x = 2 }"),
        ("if a { x = 1 }\n\n# no\n else { x = 2 }", "if a {\nx = 1\n} else {\nx = 2\n}"),
        ("if a { x = 1 } else {}", "if a { x = 1 }"),
        ("barrier(seq_cst)", "barrier"),
        ("barrier(grid_sync)", "grid_sync"),
        (";;x = 1;;", "x = 1"),
        ("a[\n1\n] = 2", "a[1] = 2"),
        ("x = 1\r\ny = 2\r", "x = 1\ny = 2"),
    ],
)
def test_two_ways_to_write_the_same_statements(one: str, other: str) -> None:
    assert parse(f"program p(workgroup 1) {{ {one} }}") == parse(f"program p(workgroup 1) {{ {other} }}")


def test_an_else_if_chain_is_nested_ifs() -> None:
    (statement,) = parse("program p(workgroup 1) { if a {} else if b {} else { x = 1 } }").entry
    assert statement == b.if_(b.var("a"), [], [b.if_(b.var("b"), [], [b.assign("x", 1)])])


def test_words_of_the_language_are_names_where_nothing_else_fits() -> None:
    text = (
        "program program(workgroup 1) {\n  buffer = 1\n  buffer[0] = block\n  block = region\n  region[from] = gid\n}"
    )
    assert print_program(parse(text)) == text
    assert parse(text).buffers == ()


@pytest.mark.parametrize("access", Access)
@pytest.mark.parametrize("is_output", [False, True])
def test_every_access_round_trips(access: Access, is_output: bool) -> None:
    decl = BufferDecl("a", 3, access, DType.F16, 5, is_output)
    assert_round_trip(Program.new([decl], 1, []))


def test_output_alone_is_readwrite_output() -> None:
    output = parse("program p(workgroup 1) { buffer 0 a: u32[] output }")
    assert output.buffers == (BufferDecl.output("a", 0, DType.U32),)
    assert parse("program p(workgroup 1) { buffer 0 a: u32[] readwrite output }") == output


def test_the_header_leaves_out_what_is_usual() -> None:
    headers = {
        (1, 1, 1): "workgroup 1",
        (8, 1, 1): "workgroup 8",
        (8, 4, 1): "workgroup 8, 4",
        (1, 1, 2): "workgroup 1, 1, 2",
    }
    for size, header in headers.items():
        assert print_program(Program.new([], size, [])) == f"program main({header}) {{\n}}"
    small = Program.new([], 64, [], subgroup_size=16)
    assert print_program(small) == "program main(workgroup 64, subgroup 16) {\n}"
    assert (
        parse("program\nmain(\nworkgroup 64\n,\nsubgroup\n16\n)\n{}".replace("\nmain", " main").replace("\n{", "{"))
        == small
    )


@pytest.mark.parametrize("string", [*STRINGS, "".join(map(chr, range(0x300)))])
def test_any_string_round_trips(string: str) -> None:
    written = write_string(string)
    assert "\n" not in written
    assert read_string(written) == string


def test_names_are_identifiers_that_are_not_reserved() -> None:
    assert all(is_identifier(name) for name in NAMES)
    for word in (*RESERVED, "", "1a", "a-b", "a b", "é", "a\n", "L" * 257):
        assert not is_identifier(word)
    for word in RESERVED:
        with pytest.raises(ParseError):
            parse(f"program p(workgroup 1) {{ let {word} = 1 }}")
        with pytest.raises(ParseError):
            parse(f"program p(workgroup 1) {{ {word} = 1 }}")


def assert_source_map(program: Program) -> None:
    """Every node's span holds text that reads as that node."""
    source = program.source
    assert source is not None
    assert len(source.buffers) == 2 * len(program.buffers)
    for number, decl in enumerate(program.buffers):
        span = source.span(Place(buffer=number))
        assert parse(f"program p(workgroup 1) {{ {source.text[span.start : span.stop]} }}").buffers == (decl,)
    numbered = list(walk.statements(program.entry))
    assert len(source.statements) == 2 * len(numbered) == 2 * len(source.first_expression)
    seen = 0
    for number, statement in enumerate(numbered):
        span = source.span(Place(statement=number))
        assert parse(f"program p(workgroup 1) {{ {source.text[span.start : span.stop]} }}").entry == (statement,)
        nodes = [node for root in walk.operands(statement) for node in walk.postorder(root)]
        assert source.first_expression[number] == seen
        seen += len(nodes)
        for position, node in enumerate(nodes):
            span = source.span(Place(statement=number, expression=position))
            text = source.text[span.start : span.stop]
            assert parse_expression(text) == node
            assert not text.startswith("(") or not text.endswith(")") or _is_needed(text)
    assert len(source.expressions) == 2 * seen
    header = source.text[source.header.start : source.header.stop]
    assert parse(header + "{}") == Program.new([], program.workgroup_size, [], name=program.name,
                                               subgroup_size=program.subgroup_size)  # fmt: skip


def _is_needed(text: str) -> bool:
    """Whether the first parenthesis of a text closes before its end."""
    depth = 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return position < len(text) - 1
    return False


@pytest.mark.parametrize("text", [REACH, EVERYTHING])
def test_the_source_map_points_at_every_node(text: str) -> None:
    assert_source_map(parse(text))


@pytest.mark.parametrize("seed", range(60))
def test_the_source_map_of_any_program_points_at_every_node(seed: int) -> None:
    assert_source_map(parse(print_program(random_program(seed))))


def test_spans_leave_outer_parentheses_out_and_keep_inner_ones() -> None:
    source = parse("program p(workgroup 1) { x = ((a + b) * (c)) }").source
    assert source is not None
    spans = [source.span(Place(statement=0, expression=k)) for k in range(5)]
    assert [source.text[s.start : s.stop] for s in spans] == ["a", "b", "a + b", "c", "(a + b) * (c)"]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13])
@pytest.mark.parametrize("text", [EVERYTHING, 'a"b\\"c\n"\\', '0x1p-3 1e+5 1..2 gid.x x"00" "s\\"', "# c\n<<>>=="])
def test_tokens_do_not_depend_on_where_batches_end(monkeypatch: pytest.MonkeyPatch, size: int, text: str) -> None:
    def all_tokens() -> list[lexer.Token]:
        found = []
        for token in lexer.tokens(text):
            found.append(token)
            if not token[0]:
                return found
        raise AssertionError

    whole = all_tokens()
    monkeypatch.setattr(lexer, "_CHUNK", size)
    assert all_tokens() == whole
    assert all(text[start:stop] == token for token, start, stop in whole)


def deepest_expression(depth: int) -> n.Expr:
    expression: n.Expr = n.Var("x")
    for level in range(depth - 1):
        match level % 5:
            case 0:
                expression = n.BinOp("sub", n.Var("x"), expression)
            case 1:
                expression = n.UnOp("neg", expression)
            case 2:
                expression = n.Load("a", expression)
            case 3:
                expression = n.BinOp("add", expression, n.Var("x"))
            case _:
                expression = n.Select(n.Var("c"), expression, n.Var("x"))
    return expression


def deepest_statement(depth: int, expression: n.Expr) -> n.Stmt:
    statement: n.Stmt = n.Let("x", expression)
    for level in range(depth):
        statement = (b.if_(expression, [statement]), b.loop("i", 0, 1, [statement]), b.block(statement))[level % 3]
    return statement


def test_the_deepest_legal_program_round_trips() -> None:
    deep = deepest_expression(limits.MAX_EXPRESSION_DEPTH)
    program = Program.new([], 1, [deepest_statement(limits.MAX_NESTING, deep)])
    assert program.stats().nesting == limits.MAX_NESTING
    assert program.stats().expression_depth == limits.MAX_EXPRESSION_DEPTH
    assert_round_trip(program)


@pytest.mark.parametrize(
    ("body", "limit"),
    [
        ("x = " + print_expression(deepest_expression(limits.MAX_EXPRESSION_DEPTH + 1)), "1,024 levels"),
        ("x = " + "-" * 1024 + "a", "1,024 levels"),
        ("x = 1" + " + 1" * 1024, "1,024 levels"),
        ("x = " + "(" * 4_097 + "1" + ")" * 4_097, "4,096 brackets"),
        ("x = " + "a[" * 1024 + "1" + "]" * 1024, "1,024 levels"),
        ("x = " + "f32(" * 1024 + "1" + ")" * 1024, "1,024 levels"),
        ("block {" * 65 + "x = 1" + "}" * 65, "64 levels"),
        ("if a {} " + "else if b {} " * 65, "64 levels"),
        ("let " + "L" * 257 + " = 1", "256"),
        ("x = " + "1" * 1001, "1,000"),
    ],
)
def test_what_is_over_a_limit_is_refused_by_name(body: str, limit: str) -> None:
    with pytest.raises(ParseError, match=limit):
        parse(f"program p(workgroup 1) {{ {body} }}")


def test_what_is_at_a_limit_is_read() -> None:
    for body in (
        "x = " + "-" * 1023 + "a",
        "x = 1" + " + 1" * 1023,
        "x = " + "a[" * 1023 + "1" + "]" * 1023,
        "block {" * 64 + "x = 1" + "}" * 64,
        "block {" * 65 + "}" * 65,
        "if a {} " + "else if b {} " * 64,
        "x = " + "(" * 4_000 + "1" + ")" * 4_000,
    ):
        assert_round_trip(parse(f"program p(workgroup 1) {{ {body} }}"))


@pytest.mark.parametrize(
    ("name", "limit", "text"),
    [
        ("MAX_STATEMENTS", 10, "x = 1\n" * 11),
        ("MAX_EXPRESSIONS", 10, 'x = call("f", 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)'),
        ("MAX_EXPRESSIONS", 10, "x = 1 + 2 * (3 - 4)\n" * 3),
        ("MAX_BUFFERS", 2, "buffer 0 a: u32[] read\n" * 3),
        ("MAX_PAYLOAD_BYTES", 1, 'opaque("k", x"0011")'),
        ("MAX_TEXT_BYTES", 30, "x = 1"),
    ],
)
def test_a_count_over_its_limit_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, limit: int, text: str) -> None:
    monkeypatch.setattr(limits, name, limit)
    with pytest.raises(ParseError, match=str(limit)):
        parse(f"program p(workgroup 1) {{\n{text}\n}}")


@pytest.mark.parametrize(
    "text",
    [
        "(" * 1_000_000,
        "program p(workgroup 1) { x = " + "(" * 300_000,
        "program p(workgroup 1) { x = " + "min(" * 300_000,
        "program p(workgroup 1) { x = " + "~" * 300_000,
        "program p(workgroup 1) { x = " + "9" * 1_000_000 + " }",
        'program p(workgroup 1) { resume("' + "a" * 1_000_000,
        'program p(workgroup 1) { resume("' + "\\" * 1_000_001 + '"',
        "program p(workgroup 1) { x = " + "a " * 300_000,
        "program p(workgroup 1) {" + " if a {} else" * 100_000,
        "program p(workgroup 1) {" + " {" * 300_000,
        "#" * 2_000_000,
        "\n" * 1_000_000,
        " " * 2_000_000,
        "\x00" * 500_000,
        "program p(workgroup 1) { x = 0x1p" + "9" * 900 + " }",
        "program " + "p" * 1_000_000,
        "program p(workgroup 1) { " + "zzzz" * 100_000 + " }",
        "1." * 300_000,
        '"' * 500_000,
    ],
)  # fmt: skip
def test_hostile_texts_are_refused_at_once(text: str) -> None:
    started = time.process_time()
    with pytest.raises(ParseError) as caught:
        parse(text)
    assert time.process_time() - started < 5
    assert len(str(caught.value)) < 2_000


@pytest.mark.parametrize("mantissa", ["1", "0.1", "0.0"])
def test_exponents_of_any_size_are_read_at_once(mantissa: str) -> None:
    for exponent in ("9" * 900, "-" + "9" * 900):
        try:
            value = parse_expression(f"{mantissa}e{exponent}")
        except ParseError as error:
            assert mantissa != "0.0"
            assert "too large" in error.message
        else:
            assert value == n.Lit(0, DType.F32)


def test_a_program_that_is_larger_than_any_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vyre.ir.printer._MOST_PARTS", 100_000)
    expression: n.Expr = n.Var("x")
    for _ in range(60):
        expression = expression + expression
    with pytest.raises(InvalidProgram, match="too large"):
        print_expression(expression)


def test_what_has_no_text_is_printed_clearly() -> None:
    strange = [
        n.Let(3, b.lit(1)),  # type: ignore[arg-type]
        n.Let("x", 5),  # type: ignore[arg-type]
        n.Let("x", n.InvocationId(7)),
        n.Let("x", n.BinOp("nothing", b.lit(1), b.lit(2))),
        n.Let("x", n.UnOp("nothing", b.lit(1))),
        n.Let("x", n.Lit(1 << 40, DType.U32)),
        n.Let("x", n.Lit("y", DType.U32)),  # type: ignore[arg-type]
        n.Let("x", n.Cast("u32", b.lit(1))),  # type: ignore[arg-type]
        n.Resume(7),  # type: ignore[arg-type]
        n.OpaqueStmt("k", "not bytes"),  # type: ignore[arg-type]
        n.Block(3),  # type: ignore[arg-type]
        n.If(b.lit(True), (), 3),  # type: ignore[arg-type]
        None,
    ]
    assert print_statements(tuple(strange)).splitlines() == [  # type: ignore[arg-type]
        "let 3 = 1",
        "let x = <int>",
        "let x = gid.7",
        "let x = <nothing>(1, 2)",
        "let x = <nothing>(1)",
        "let x = <bits 1099511627776>u32",
        "let x = <bits y>u32",
        "let x = <u32>()",
        "resume(<int>)",
        'opaque("k", <str>)',
        "block { <int> }",
        "if true {} else { <int> }",
        "<NoneType>",
    ]


def test_a_program_nested_beyond_every_limit_is_printed() -> None:
    statement: n.Stmt = n.Break()
    for _ in range(20_000):
        statement = n.Block((statement,))
    assert print_statements((statement,)).count("block") == 20_000


def test_the_programs_of_the_language_page_are_programs() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "language.md").read_text(encoding="utf-8")
    examples = re.findall(r"```vyre\n(.*?)```", page, re.DOTALL)
    assert len(examples) == 3
    for example in examples:
        assert_round_trip(parse(example))


def test_the_language_page_names_every_form_and_every_reserved_word() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "language.md").read_text(encoding="utf-8")
    for form in (*STATEMENT_FORMS.values(), *EXPRESSION_FORMS.values()):
        if form.node not in (n.BinOp, n.UnOp, n.Cast, n.Atomic):
            assert f"{form.word}(" in page, form.word
    for word in (*KEYWORDS, *(dtype.label for dtype in DType)):
        assert re.search(rf"\b{word}\b", page), word


def test_the_repr_of_a_node_is_short_however_large_the_node_is() -> None:
    assert repr(b.gid(0) + 1) == "<BinOp gid.x + 1>"
    assert repr(b.store("a", 0, b.gid(0))) == "<Store a[0] = gid.x>"
    deep: n.Expr = b.gid(0)
    for _ in range(5_000):
        deep = deep + deep
    assert len(repr(deep)) < 200
    assert len(repr(b.block(*[b.return_()] * 100_000))) < 200
