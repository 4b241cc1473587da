"""What program is a kernel? Its parameters as buffers, its body as statements, each with its place in the source."""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence

import msgspec

from vyre.checker import Report
from vyre.driver.binding import binder_of
from vyre.errors import InvalidProgram, KernelError
from vyre.ir import nodes as n
from vyre.ir.buffers import BufferDecl
from vyre.ir.places import SourceMap, Span, placed
from vyre.ir.program import Program
from vyre.lang.annotations import ArrayType, Parameter
from vyre.lang.arguments import Spec
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
    ``specs`` say what the parameters take; ``captures`` are what is built in from outside.
    """

    program: Program
    specs: tuple[Spec, ...]
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
    specs = [Spec.of(one, decl.name in writer.whole) for one, decl in zip(parameters, buffers, strict=False)]
    return Translation(program, tuple(specs), tuple(writer.captures))


def _declare(context: Context, buffers: list[BufferDecl], slots: int, parameter: Parameter, layout: Layout) -> int:
    """Makes a parameter a buffer; gives the number of slots that are taken then."""
    writer, number = context.writer, len(buffers)
    name = writer.fresh_buffer(parameter.name)
    match parameter.type:
        case None:
            is_method = number == 0 and parameter.name == "self"
            fix = f"write {parameter.name}: f32, or {parameter.name}: In[f32]."
            raise context.error(
                parameter.node,
                f"parameter '{parameter.name}' has no type.",
                "define the kernel outside the class, or as a @staticmethod." if is_method else fix,
            )
        case DType() as dtype:
            buffers.append(BufferDecl.uniform(name, number, dtype))
            _declare_scalar(context, parameter, name, dtype)
        case ArrayType() as kind:
            make = BufferDecl.read_write if kind.direction.writes else BufferDecl.read
            sizes = kind.sizes or (None,) * kind.rank
            count = 0 if layout is not Layout.C_ORDER else math.prod(size or 0 for size in sizes)
            buffers.append(make(name, number, kind.dtype, count))
            if parameter.name in context.scopes.written:
                node = _first_write(context.source.tree, parameter.name)
                raise context.error(node, f"'{parameter.name}' is an array parameter.", "use another name.")
            shape: tuple[Dimension, ...] = sizes
            strides: tuple[Slot | None, ...] | None = None
            if layout is not Layout.C_ORDER or kind.rank > 1:
                shape = tuple(
                    size or Slot(slots + axis, f"{parameter.name}_size_{axis}") for axis, size in enumerate(sizes)
                )
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
    made_up = [spans.get(id(decl), header) for decl in program.buffers[len(declared) :]]
    for span in (*declared, *made_up):
        made.buffers.extend((span.start, span.stop))
    return placed(msgspec.structs.replace(made, header=header), program, spans)


def _refusal(program: Program, error: InvalidProgram) -> KernelError:
    """What the checker found, shown in the user's file."""
    place = error.diagnostics[0].place
    assert program.source is not None  # translate() gave it one
    line, column = program.source.line_and_column(program.source.span(place).start)
    rendered = Report(error.diagnostics).render(program)
    return KernelError(
        error.message, error.fix, line=line, column=column, rendered=rendered, diagnostics=error.diagnostics
    )
