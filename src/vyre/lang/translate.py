"""What program is a kernel? Its parameters as buffers, its body as statements, each with its place in the source."""

from __future__ import annotations

import ast
from array import array
from collections.abc import Sequence

import msgspec

from vyre.checker import Report
from vyre.driver.binding import binder_of
from vyre.errors import InvalidProgram, KernelError
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.buffers import BufferDecl
from vyre.ir.places import SourceMap, Span
from vyre.ir.program import Program
from vyre.lang.annotations import ArrayType, Parameter
from vyre.lang.context import Capture, Context, Variable, Writer
from vyre.lang.inline import enter, inline
from vyre.lang.source import Source
from vyre.lang.statements import block
from vyre.lang.tasks import run
from vyre.lang.values import ArrayRef, Dimension, Layout, Scalar, Slot
from vyre.semantics.types import DType


class Translation(msgspec.Struct, frozen=True, eq=False):
    """A kernel as a program, for arrays that lie in memory in one way.

    Buffers are the parameters in their order, then the ``shapes`` if there are any slots, then workgroup memory.
    ``captures`` are the numbers from outside that are built in.
    """

    program: Program
    slots: int
    captures: tuple[Capture, ...]


def translate(
    source: Source,
    parameters: Sequence[Parameter],
    workgroup: tuple[int, ...],
    subgroup: int,
    layouts: Sequence[Layout] = (),
    *,
    strict: bool = False,
) -> Translation:
    """The program of a kernel; ``layouts`` says of each parameter how it lies in memory, in C order if nothing."""
    writer = Writer(strict=strict)
    writer.inline = inline
    context = enter(writer, source, parameters)
    writer.reserved = context.scopes.locals
    buffers: list[BufferDecl] = []
    slots = 0
    for number, parameter in enumerate(parameters):
        layout = layouts[number] if layouts else Layout.C_ORDER
        slots = _declare(context, buffers, slots, parameter, layout)
    if slots:
        writer.shapes = writer.fresh_buffer("shapes")
        buffers.append(BufferDecl.uniform(writer.shapes, len(buffers), DType.U32, slots))
    body = run(block(context, source.tree.body))
    buffers += writer.shared
    program = Program.new(
        buffers, workgroup, (*writer.prologue, *body), name=_program_name(source), subgroup_size=subgroup
    )
    program = program.with_source(_source_map(context, parameters, program))
    try:
        binder_of(program)
    except InvalidProgram as error:
        raise _refusal(program, error) from None
    return Translation(program, slots, tuple(writer.captures))


def _declare(context: Context, buffers: list[BufferDecl], slots: int, parameter: Parameter, layout: Layout) -> int:
    """Makes a parameter a buffer; gives the number of slots that are taken then."""
    writer, number = context.writer, len(buffers)
    name = writer.fresh_buffer(parameter.name)
    match parameter.type:
        case None:
            raise context.error(
                parameter.node, f"parameter '{parameter.name}' has no type.",
                f"write {parameter.name}: f32, or {parameter.name}: In[f32].",
            )  # fmt: skip
        case DType() as dtype:
            buffers.append(BufferDecl.uniform(name, number, dtype))
            _declare_scalar(context, parameter, name, dtype)
        case ArrayType() as kind:
            make = BufferDecl.read_write if kind.direction.writes else BufferDecl.read
            buffers.append(make(name, number, kind.dtype))
            if parameter.name in context.scopes.written:
                node = _first_write(context.source.tree, parameter.name)
                raise context.error(node, f"'{parameter.name}' is an array parameter.", "use another name.")
            shape: tuple[Dimension, ...] = (None,)
            strides: tuple[Slot | None, ...] | None = None
            if layout is not Layout.C_ORDER or kind.rank > 1:
                shape = tuple(Slot(slots + axis, f"{parameter.name}_size_{axis}") for axis in range(kind.rank))
                slots += kind.rank
            if layout is not Layout.C_ORDER:
                axes = kind.rank - (layout is Layout.ROWS)
                labels = [*(f"{parameter.name}_stride_{axis}" for axis in range(axes)), f"{parameter.name}_first"]
                *steps, first = [Slot(slots + at, label) for at, label in enumerate(labels)]
                strides = (*steps, *[None] * (kind.rank - axes), first)
                slots += len(labels)
            context.parameters[parameter.name] = ArrayRef(
                parameter.name, name, kind.dtype, shape, strides, kind.direction.reads, kind.direction.writes
            )
    return slots


def _declare_scalar(context: Context, parameter: Parameter, buffer: str, dtype: DType) -> None:
    """Loads a scalar where the kernel begins, if the kernel uses it."""
    name, writer, tree = parameter.name, context.writer, context.source.tree
    if not any(isinstance(node, ast.Name) and node.id == name for part in tree.body for node in ast.walk(part)):
        return
    variable = Variable(writer.fresh_name(name, own=True), dtype)
    first = n.Let(variable.name, n.Load(buffer, n.lit(0)))
    writer.place(first, context.span(parameter.node))
    writer.prologue.append(first)
    if name in context.scopes.written:
        context.variables[id(context.body), name] = variable
    else:
        context.parameters[name] = Scalar(n.Var(variable.name), dtype)


def _first_write(tree: ast.FunctionDef, name: str) -> ast.AST:
    writes = (
        n_ for n_ in ast.walk(tree) if isinstance(n_, ast.Name) and n_.id == name and isinstance(n_.ctx, ast.Store)
    )
    return min(writes, key=lambda node: (node.lineno, node.col_offset))


def _program_name(source: Source) -> str:
    return Writer(strict=False).fresh_name(source.function.__name__)


def _source_map(context: Context, parameters: Sequence[Parameter], program: Program) -> SourceMap:
    """Where everything in the program came from; what was made up belongs to what it was made for."""
    source, spans = context.source, context.writer.spans
    tree = source.tree
    start = source.span(tree).start
    header = Span(start, source.span(tree.body[0]).start)
    made = source.map()
    declared = [source.span(parameter.node) for parameter in parameters]
    for span in (*declared, *[header] * (len(program.buffers) - len(declared))):
        made.buffers.extend((span.start, span.stop))
    pending: list[tuple[n.Stmt, Span]] = [(statement, header) for statement in reversed(program.entry)]
    while pending:
        statement, around = pending.pop()
        span = spans.get(id(statement), around)
        made.statements.extend((span.start, span.stop))
        made.first_expression.append(len(made.expressions) // 2)
        for root in walk.operands(statement):
            made.expressions.extend(_expression_spans(root, span, spans))
        inner = [one for body in walk.bodies(statement) for one in body]
        pending += [(one, span) for one in reversed(inner)]
    return msgspec.structs.replace(made, header=header)


def _expression_spans(root: n.Expr, around: Span, spans: dict[int, Span]) -> array[int]:
    """Start and stop of each node in order of evaluation."""
    pending, found = [(root, around)], array("i")
    while pending:
        node, outer = pending.pop()
        span = spans.get(id(node), outer)
        found.extend((span.stop, span.start))
        pending += [(part, span) for part in walk.operands(node)]
    found.reverse()
    return found


def _refusal(program: Program, error: InvalidProgram) -> KernelError:
    """What the checker found, shown in the user's file."""
    place = error.diagnostics[0].place
    assert program.source is not None  # translate() gave it one
    line, column = program.source.line_and_column(program.source.span(place).start)
    rendered = Report(error.diagnostics).render(program)
    return KernelError(
        error.message, error.fix, line=line, column=column, rendered=rendered, diagnostics=error.diagnostics
    )
