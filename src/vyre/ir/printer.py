"""How is a program written as text? ``parse`` reads it back exactly (``docs/language.md`` tells the form).

Everything is one loop over a stack of parts still to write, so neither depth nor width matters. Programs that are not
legal are written too, as far as they can be, for the diagnostics about them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from vyre.errors import InvalidProgram
from vyre.ir import nodes as n
from vyre.ir.buffers import Access, BufferDecl
from vyre.ir.forms import AXES, EXPRESSION_FORMS, ID_WORDS, STATEMENT_FORMS, Form, Slot
from vyre.ir.limits import MAX_EXPRESSIONS, MAX_NESTING, MAX_STATEMENTS
from vyre.ir.literals import write_bytes, write_literal, write_string
from vyre.ir.names import WORD
from vyre.ir.program import DEFAULT_SUBGROUP_SIZE, Program, require_program
from vyre.semantics.operators import BINARY, UNARY
from vyre.semantics.types import DType

_STEP: Final = "  "
_DEEPEST: Final = _STEP * (MAX_NESTING + 1)
# More parts than any legal program has: a few shared subexpressions can stand for more text than fits anywhere.
_MOST_PARTS: Final = 3 * MAX_EXPRESSIONS + 8 * MAX_STATEMENTS

_SHORT_PARTS: Final = 1_000
_SHORT_TEXT: Final = 100

_INFIX: Final = {row.name: (row.precedence, f" {row.spelling} ") for row in BINARY.values() if row.is_symbol}
_PREFIX: Final = {row.name: row.spelling for row in UNARY.values() if row.is_symbol}
_ID_WORD: Final = {node: word for word, node in ID_WORDS.items()}


class _Lines(NamedTuple):
    """A list of statements, each on lines of its own."""

    body: n.Body
    indent: str


class _Branches(NamedTuple):
    """An ``if`` from that word on, with all its ``else if``."""

    statement: n.If
    indent: str


def print_program(program: Program) -> str:
    """The program as text, without a line end after the last line."""
    if not require_program(program).stats().complete:
        raise _too_large()
    lines = [_header(program), *_declarations(program.buffers)]
    if program.buffers and program.entry:
        lines.append("")
    lines.append(print_statements(program.entry, 1))
    return "\n".join(lines) + "}"


def print_statements(body: n.Body, indent: int = 0) -> str:
    """Statements as lines, indented by so many levels, each with its line end."""
    return _write([_Lines(body, _STEP * indent)])


def print_expression(expression: n.Expr) -> str:
    """An expression as text, with the fewest parentheses that keep its structure."""
    return _write([expression])


def short_text(node: n.Node) -> str:
    """The beginning of a node's text on one line, however large the node is."""
    part: Any = node if isinstance(node, n.Expr) else _Lines((node,), "")  # type: ignore[arg-type]
    try:
        text = _write([part], _SHORT_PARTS)
    except InvalidProgram:
        return "…"
    line = " ".join(text.split())
    return line if len(line) <= _SHORT_TEXT else line[:_SHORT_TEXT] + "…"


def _write(pending: list[Any], most_parts: int | None = None) -> str:
    out: list[str] = []
    for _ in range(most_parts or _MOST_PARTS):
        if not pending:
            return "".join(out)
        part = pending.pop()
        kind = type(part)
        if kind is str:
            out.append(part)
            continue
        write = _WRITERS.get(kind)
        if write is None:
            out.append(_unknown(part))
        else:
            write(part, out, pending)
    raise _too_large()


def _too_large() -> InvalidProgram:
    return InvalidProgram(
        "the program is too large to print: it is over the limits of expressions or statements.",
        "split it into smaller programs, or name what its expressions share with let.",
    )


def _header(program: Program) -> str:
    axes = list(program.workgroup_size)
    while len(axes) > 1 and axes[-1] == 1:
        axes.pop()
    parts = "workgroup " + ", ".join(map(str, axes))
    if program.subgroup_size != DEFAULT_SUBGROUP_SIZE:
        parts += f", subgroup {program.subgroup_size}"
    return f"program {program.name}({parts}) {{"


def _declarations(buffers: tuple[BufferDecl, ...]) -> list[str]:
    binding_width = max((len(str(decl.binding)) for decl in buffers), default=0)
    name_width = max((len(str(decl.name)) for decl in buffers), default=0) + 1
    return [
        f"{_STEP}buffer {decl.binding!s:>{binding_width}} {f'{decl.name}:':<{name_width}} {_declaration(decl)}"
        for decl in buffers
    ]


def _declaration(decl: BufferDecl) -> str:
    words = [f"{decl.dtype}[{decl.count or ''}]"]
    if not (decl.is_output and decl.access is Access.READ_WRITE):
        words.append(decl.access.value)
    if decl.is_output:
        words.append("output")
    if decl.pipeline_live_out:
        words.append("live_out")
    if decl.output_byte_range is not None:
        words.append("bytes {}..{}".format(*decl.output_byte_range))
    for key, value in decl.hints:
        words.append(f"hint {key if WORD.fullmatch(key) else write_string(key)} {write_string(value)}")
    return " ".join(words)


def _lines(part: _Lines, out: list[str], pending: list[Any]) -> None:
    del out
    indent = part.indent
    for statement in reversed(part.body):
        pending += ("\n", *reversed(_statement(statement, indent)), indent)


def _statement(statement: n.Stmt, indent: str) -> tuple[Any, ...]:
    """The parts of a statement, in order."""
    match statement:
        case n.Let(name, value):
            return (f"let {name} = ", value)
        case n.Assign(name, value):
            return (f"{name} = ", value)
        case n.Store(buffer, index, value):
            return (f"{buffer}[", index, "] = ", value)
        case n.If():
            return (_Branches(statement, indent),)
        case n.Loop(var, start, stop, body):
            return (f"for {var} in ", start, " .. ", stop, " ", *_braces(body, indent))
        case n.While(condition, body):
            return ("while ", condition, " ", *_braces(body, indent))
        case n.Break():
            return ("break",)
        case n.Continue():
            return ("continue",)
        case n.Return():
            return ("return",)
        case n.Barrier(n.MemoryOrder.SEQ_CST):
            return ("barrier",)
        case n.Barrier(n.MemoryOrder.GRID_SYNC):
            return ("grid_sync",)
        case n.Barrier(order):
            return (f"barrier({_order(order)})",)
        case n.Block(body):
            return ("block ", *_braces(body, indent))
        case n.Region(generator, source, body):
            origin = "" if source is None else f" from {_string(source)}"
            return (f"region {_string(generator)}{origin} ", *_braces(body, indent))
        case _:
            form = _STATEMENT_FORM.get(type(statement))
            return (_unknown(statement),) if form is None else _arguments(form, statement)


def _branches(part: _Branches, out: list[str], pending: list[Any]) -> None:
    del out
    statement, indent = part
    otherwise = statement.otherwise
    parts: tuple[Any, ...] = ("if ", statement.condition, " ", *_braces(statement.then, indent))
    if isinstance(otherwise, tuple) and len(otherwise) == 1 and type(otherwise[0]) is n.If:
        parts += (" else ", _Branches(otherwise[0], indent))
    elif otherwise:
        parts += (" else ", *_braces(otherwise, indent))
    pending += reversed(parts)


def _braces(body: n.Body, indent: str) -> tuple[Any, ...]:
    if not body:
        return ("{}",)
    if not isinstance(body, tuple):
        return (f"{{ {_unknown(body)} }}",)
    # Deeper than any legal program, indentation alone could be larger than everything else.
    deeper = indent + _STEP if len(indent) < len(_DEEPEST) else indent
    return ("{\n", _Lines(body, deeper), f"{indent}}}")


def _arguments(form: Form, node: n.Node) -> tuple[Any, ...]:
    """``word(argument, ...)`` as parts."""
    parts: list[Any] = [form.word, "("]
    for slot, field in zip(form.slots, form.fields, strict=True):
        value = getattr(node, field)
        if slot is Slot.REST:
            parts += [part for argument in value for part in (argument, ", ")]
        elif slot is not Slot.ORDER or value is not n.MemoryOrder.SEQ_CST:
            parts += (_PLAIN[slot](value) if slot in _PLAIN else value, ", ")
    if parts[-1] == ", ":
        parts.pop()
    return (*parts, ")")


def _unknown(value: object) -> str:
    """Something that has no text, because it cannot be part of a program."""
    return f"<{type(value).__name__}>"


def _string(value: object) -> str:
    return write_string(value) if isinstance(value, str) else _unknown(value)


def _bytes(value: object) -> str:
    return write_bytes(value) if isinstance(value, bytes) else _unknown(value)


def _order(order: object) -> str:
    return str(getattr(order, "value", order))


_PLAIN: Final[dict[Slot, Callable[[Any], str]]] = {
    Slot.NAME: str,
    Slot.OPERATOR: str,
    Slot.TYPE: str,
    Slot.STRING: _string,
    Slot.INTEGER: str,
    Slot.BYTES: _bytes,
    Slot.ORDER: _order,
}


def _lit(node: n.Lit, out: list[str], pending: list[Any]) -> None:
    del pending
    bits, dtype = node.bits, node.dtype
    if type(bits) is int and type(dtype) is DType and not bits >> dtype.bits:
        out.append(write_literal(bits, dtype))
    else:
        out.append(f"<bits {bits}>{dtype}")


def _var(node: n.Var, out: list[str], pending: list[Any]) -> None:
    del pending
    out.append(str(node.name))


def _load(node: n.Load, out: list[str], pending: list[Any]) -> None:
    out.append(f"{node.buffer}[")
    pending += ("]", node.index)


def _id(node: Any, out: list[str], pending: list[Any]) -> None:
    del pending
    axis = node.axis
    out.append(f"{_ID_WORD[type(node)]}.{AXES[axis] if axis in (0, 1, 2) else axis}")


def _binary(node: n.BinOp, out: list[str], pending: list[Any]) -> None:
    infix = _INFIX.get(node.op)
    if infix is None:
        _by_word(node, out, pending)
        return
    precedence, symbol = infix
    left, right = node.left, node.right
    # Operators are left associative: on the right, one that binds no tighter needs its parentheses.
    if type(right) is n.BinOp and right.op in _INFIX and _INFIX[right.op][0] <= precedence:
        pending += (")", right, "(", symbol)
    else:
        pending += (right, symbol)
    if type(left) is n.BinOp and left.op in _INFIX and _INFIX[left.op][0] < precedence:
        pending += (")", left)
        out.append("(")
    else:
        pending.append(left)


def _unary(node: n.UnOp, out: list[str], pending: list[Any]) -> None:
    symbol = _PREFIX.get(node.op)
    if symbol is None:
        _by_word(node, out, pending)
        return
    operand = node.operand
    out.append(symbol)
    infix = type(operand) is n.BinOp and operand.op in _INFIX
    # A minus before a number would become part of it.
    if infix or (node.op == "neg" and type(operand) is n.Lit):
        pending += (")", operand, "(")
    else:
        pending.append(operand)


def _by_word(node: Any, out: list[str], pending: list[Any]) -> None:
    """A node whose word depends on what it says: an operator, a type."""
    del out
    kind = type(node)
    said = node.target if kind is n.Cast else node.op
    form = _FORM_BY_WORD.get((kind, said))
    if form is not None:
        pending += reversed(_arguments(form, node))
        return
    operands = [node.left, ", ", node.right] if kind is n.BinOp else [node.operand] if kind is n.UnOp else []
    pending += reversed([f"<{getattr(said, 'value', said)}>(", *operands, ")"])


def _by_class(node: n.Expr, out: list[str], pending: list[Any]) -> None:
    del out
    pending += reversed(_arguments(_EXPRESSION_FORM[type(node)], node))


_FORM_BY_WORD: Final = {(form.node, said): form for form in EXPRESSION_FORMS.values() for said in form.fixed.values()}
_EXPRESSION_FORM: Final = {form.node: form for form in EXPRESSION_FORMS.values() if not form.fixed}
_STATEMENT_FORM: Final = {form.node: form for form in STATEMENT_FORMS.values()}

_WRITERS: Final[dict[type, Callable[[Any, list[str], list[Any]], None]]] = {
    _Lines: _lines,
    _Branches: _branches,
    n.Lit: _lit,
    n.Var: _var,
    n.Load: _load,
    n.BinOp: _binary,
    n.UnOp: _unary,
    n.Cast: _by_word,
    n.Atomic: _by_word,
    **dict.fromkeys(ID_WORDS.values(), _id),
    **dict.fromkeys(_EXPRESSION_FORM, _by_class),
}
