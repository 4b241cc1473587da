"""Where in a program is something?

A place names a node by its canonical position (``vyre.ir.walk``), so programs carry no positions in their nodes.
A ``SourceMap`` beside a program tells where each position came from in text: a ``.vyre`` file or a Python kernel.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from vyre.ir import walk

if TYPE_CHECKING:
    from vyre.ir.nodes import Expr, Stmt
    from vyre.ir.program import Program


class Place(msgspec.Struct, frozen=True):
    """A node by position: the statement's number in preorder, and of its operands' nodes the number in postorder.

    A place with a ``buffer`` alone is that declaration; with nothing, the program itself.
    """

    statement: int | None = None
    expression: int | None = None
    buffer: int | None = None


class Span(msgspec.Struct, frozen=True):
    """A stretch of a source text, in characters."""

    start: int
    stop: int


class SourceMap(msgspec.Struct, frozen=True, eq=False):
    """Where each statement, expression and buffer of a program stands in its source text.

    All arrays hold start and stop in turn. ``first_expression[k]`` is the number of expression nodes in the
    statements before statement k.
    """

    name: str
    text: str
    buffers: array[int]
    statements: array[int]
    first_expression: array[int]
    expressions: array[int]
    header: Span = Span(0, 0)

    def span(self, place: Place) -> Span:
        """The stretch of text that a place came from."""
        if place.buffer is not None:
            return self._pair(self.buffers, place.buffer)
        if place.statement is None:
            return self.header
        if place.expression is None:
            return self._pair(self.statements, place.statement)
        return self._pair(self.expressions, self.first_expression[place.statement] + place.expression)

    @staticmethod
    def _pair(pairs: array[int], index: int) -> Span:
        return Span(pairs[2 * index], pairs[2 * index + 1])

    def line_and_column(self, offset: int) -> tuple[int, int]:
        """The line and the column of an offset, counted from 1."""
        start = self.text.rfind("\n", 0, offset) + 1
        return self.text.count("\n", 0, offset) + 1, offset - start + 1


def placed(source: SourceMap, program: Program, spans: Mapping[int, Span]) -> SourceMap:
    """The map of a program that came from the same text, by the spans of some of its nodes (by id).

    What has none is where that is which it is a part of.
    """
    statements, first_expression, expressions = array("i"), array("i"), array("i")
    pending: list[tuple[Stmt, Span]] = [(statement, source.header) for statement in reversed(program.entry)]
    while pending:
        statement, around = pending.pop()
        span = spans.get(id(statement), around)
        statements.extend((span.start, span.stop))
        first_expression.append(len(expressions) // 2)
        for root in walk.operands(statement):
            expressions.extend(_expression_spans(root, span, spans))
        inner = [one for body in walk.bodies(statement) for one in body]
        pending += [(one, span) for one in reversed(inner)]
    return msgspec.structs.replace(
        source, statements=statements, first_expression=first_expression, expressions=expressions
    )


def _expression_spans(root: Expr, around: Span, spans: Mapping[int, Span]) -> array[int]:
    """Start and stop of each node in order of evaluation."""
    pending, found = [(root, around)], array("i")
    while pending:
        node, outer = pending.pop()
        span = spans.get(id(node), outer)
        found.extend((span.stop, span.start))
        pending += [(part, span) for part in walk.operands(node)]
    found.reverse()
    return found


def find_statements(program: Program, numbers: Collection[int]) -> dict[int, tuple[str, Stmt]]:
    """Statements by their numbers, each with the way to it from the program, as in ``entry[3].then[0]``: one walk."""
    found: dict[int, tuple[str, Stmt]] = {}
    frames: list[tuple[str, Iterator[tuple[int, Stmt]]]] = [("entry", enumerate(program.entry))]
    number = -1
    while frames and len(found) < len(numbers):
        prefix, todo = frames[-1]
        for at, statement in todo:
            number += 1
            if number in numbers:
                found[number] = f"{prefix}[{at}]", statement
            inner = walk.named_bodies(statement)
            if inner:
                frames += [(f"{prefix}[{at}].{name}", enumerate(body)) for name, body in reversed(inner)]
                break
        else:
            frames.pop()
    return found


def describe(program: Program, place: Place) -> str:
    """A place in words that need no source text."""
    if place.buffer is not None:
        return f"buffer {program.buffers[place.buffer].name}"
    if place.statement is None:
        return "program"
    return find_statements(program, (place.statement,))[place.statement][0]
