"""What stands in the place of a call is found in the source where the call is."""

from __future__ import annotations

from vyre.ir import nodes as n
from vyre.ir import parse, walk
from vyre.ir.extensions import CompositeOp, inline_calls, register_extension, register_op
from vyre.ir.places import Place
from vyre.semantics.types import DType

register_op(
    CompositeOp(
        "tests.places.twice",
        (("x", DType.U32),),
        DType.U32,
        n.BinOp("add", n.Var("y"), n.Var("y")),
        (n.If(n.lit(True), (n.Let("z", n.lit(1)),)), n.Let("y", n.Var("x"))),
    )
)
register_extension("tests.places.nothing", lambda _: (n.Let("nothing", n.lit(0)),))

TEXT = """program calls(workgroup 1) {
  buffer 0 out: u32[] readwrite

  let a = gid.x + 1
  while call("tests.places.twice", a) < 9 {
    opaque("tests.places.nothing", x"00")
    if a > 2 { a = a + call("tests.places.twice", call("tests.places.twice", out[a])) } else { a = 7 }
  }
  out[a] = a
}
"""


def test_every_part_of_an_inlined_program_is_where_it_came_from() -> None:
    program = parse(TEXT)
    inlined = inline_calls(program)
    source = inlined.source
    assert source is not None
    assert not inlined.stats().has_extensions
    shown = []
    for number, statement in enumerate(walk.statements(inlined.entry)):
        span = source.span(Place(number))
        shown.append((type(statement).__name__, source.line_and_column(span.start)[0]))
        nodes = [node for root in walk.operands(statement) for node in walk.postorder(root)]
        for index, node in enumerate(nodes):
            inner = source.span(Place(number, index))
            assert source.line_and_column(inner.start)[0] == shown[-1][1]
            if isinstance(node, n.Load):
                assert source.text[inner.start : inner.stop] == "out[a]"
    lines = {line: [kind for kind, at in shown if at == line] for _, line in shown}
    assert list(lines) == [4, 5, 6, 7, 9]
    assert lines[4] == ["Let"]
    assert lines[5][0] == "While"
    assert lines[6] == ["Block", "Let"]
    assert lines[7][0] == "If"
    assert lines[9] == ["Store"]
