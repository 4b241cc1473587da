"""What does the translation know at a point? The program so far, the function it is in, and what each name means."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterable, Mapping
from types import CellType, FunctionType, ModuleType
from typing import Any, Final, NoReturn

import msgspec
import numpy as np

from vyre.errors import KernelError
from vyre.ir import nodes as n
from vyre.ir.buffers import BufferDecl
from vyre.ir.limits import MAX_NAME_LENGTH
from vyre.ir.names import RESERVED, nearest_word
from vyre.ir.nodes import Expr, Stmt
from vyre.ir.places import Span
from vyre.lang.functions import Function
from vyre.lang.intrinsics import INTRINSICS, OF_PYTHON, Intrinsic
from vyre.lang.scopes import Scopes
from vyre.lang.source import Source
from vyre.lang.values import Constant, Items, Known, Scalar, Slot, Value, each_part, is_literal, literal
from vyre.semantics.types import DType

_MISSING: Final = object()
PLAIN_FUNCTIONS: Final = frozenset(map(id, (*OF_PYTHON, len, range, bool, int, float)))


class Capture(msgspec.Struct, frozen=True, eq=False):
    """A number from outside the kernel, and where it was found: a namespace, a class or a closure's cell."""

    space: Mapping[str, Any] | CellType | type
    name: str
    value: Any

    @property
    def is_current(self) -> bool:
        match self.space:
            case CellType():
                now = _contents(self.space)
            case type():
                now = getattr(self.space, self.name, _MISSING)
            case _:
                now = self.space.get(self.name, _MISSING)
        return now is self.value or (type(now) is type(self.value) and now == self.value)


class Writer:
    """The program being written, for the kernel and all that is inlined into it."""

    def __init__(self, *, strict: bool) -> None:
        # Strict programs do exactly what Python would evaluate, and nothing that has no effect in advance.
        self.strict = strict
        self.body: list[Stmt] = []
        self.prologue: list[Stmt] = []
        self.shared: list[BufferDecl] = []
        # Buffers that are used as a whole, not element by element.
        self.whole: set[str] = set()
        self.captures: list[Capture] = []
        self.spans: dict[int, Span] = {}
        self._kept: list[n.Node | BufferDecl] = []
        self._names: set[str] = set()
        self._buffers: set[str] = set()
        # The kernel's own names, which what is made up on the way leaves alone.
        self.reserved: frozenset[str] = frozenset()
        self.inline: Callable[..., Any] = _no_inlining
        # The buffer of what the host tells about shapes and strides.
        self.shapes = ""
        self._slots: dict[int, str] = {}

    def fresh_name(self, wanted: str, *, own: bool = False) -> str:
        """A name that no other variable has, as close to the wanted one as can be; ``own`` ones are the kernel's."""
        return _unused(wanted, self._names, frozenset() if own else self.reserved)

    def fresh_buffer(self, wanted: str) -> str:
        """A name that no other buffer has."""
        return _unused(wanted, self._buffers, frozenset())

    def slot(self, slot: Slot) -> Scalar:
        """The number in a slot of the shapes, loaded once where the program begins."""
        name = self._slots.get(slot.index)
        if name is None:
            name = self._slots[slot.index] = self.fresh_name(slot.label)
            self.prologue.append(n.Let(name, n.Load(self.shapes, n.lit(slot.index))))
        return Scalar(n.Var(name), DType.U32)

    def place(self, node: n.Node | BufferDecl, span: Span) -> None:
        """Remembers where a node came from, unless a smaller part of the source has been named for it."""
        if id(node) not in self.spans:
            self.spans[id(node)] = span
            self._kept.append(node)


class Frame(msgspec.Struct, eq=False):
    """A list of statements being written; ``start`` is where its current statement begins."""

    key: int
    body: list[Stmt]
    start: int = 0


class Variable(msgspec.Struct, frozen=True):
    """``is_number``: it got its type from a bare number."""

    name: str
    dtype: DType
    is_number: bool = False


class Loop(msgspec.Struct, eq=False):
    """A loop around a point; ``returned`` is the variable that says whether the function returned in it."""

    returned: str | None = None


class Context:
    """One function being translated: its source, its names and the lists it is writing."""

    def __init__(
        self, writer: Writer, source: Source, scopes: Scopes, body: list[ast.stmt], caller: Context | None = None
    ) -> None:
        self.writer = writer
        self.source = source
        self.scopes = scopes
        self.body = body
        self.caller = caller
        self.site: ast.AST | None = None
        self.parameters: dict[str, Value] = {}
        self.arrays: dict[tuple[int, str], Value] = {}
        self.variables: dict[tuple[int, str], Variable] = {}
        self.frames: list[Frame] = []
        self.loops: list[Loop] = []
        # Where an inlined function's returns go; None in a kernel, and where the only return is the end.
        self.results: Any = None
        self.wanted_name: str | None = None

    def error(self, node: ast.AST, message: str, fix: str) -> KernelError:
        """The error for what stands at a node; it tells how the kernel gets there."""
        error = self.source.error(node, message, fix)
        shown = str(error)
        gutter = " " * (len(str(error.line)) + 1)
        inner: Context = self
        while inner.caller is not None and inner.site is not None:
            outer = inner.caller
            where = f"{outer.source.name}:{getattr(inner.site, 'lineno', outer.source.first_line)}"
            shown += f"\n{gutter}= note: '{inner.source.function.__name__}' is called at {where}"
            inner = outer
        error.rendered = shown
        return error

    def span(self, node: ast.AST) -> Span:
        """The stretch of the kernel's own file that a node belongs to."""
        context: Context = self
        root = self
        while root.caller is not None:
            root = root.caller
        while context.source.path != root.source.path and context.caller is not None and context.site is not None:
            node, context = context.site, context.caller
        return context.source.span(node)

    def emit(self, statement: Stmt, node: ast.AST) -> None:
        self.writer.place(statement, self.span(node))
        self.writer.body.append(statement)

    def frame_of(self, name: str) -> Frame:
        """The list that a local name lives in."""
        return next(frame for frame in reversed(self.frames) if name in self.scopes.homes[frame.key])

    def is_new(self, name: str) -> bool:
        """Whether a local name has no value yet."""
        key = self.frame_of(name).key, name
        return key not in self.variables and key not in self.arrays

    def declare(
        self, frame: Frame, name: str, dtype: DType, value: Expr, node: ast.AST, *, is_number: bool = False
    ) -> None:
        """Makes a local name a variable and gives it its first value, which stands in this list or deeper."""
        variable = Variable(self.writer.fresh_name(name, own=self.caller is None), dtype, is_number)
        self.variables[frame.key, name] = variable
        if frame is self.frames[-1]:
            self.emit(n.Let(variable.name, value), node)
            return
        self.insert(frame, n.Let(variable.name, n.lit(0, dtype)), node)
        self.emit(n.Assign(variable.name, value), node)

    def insert(self, frame: Frame, statement: Stmt, node: ast.AST) -> None:
        """Puts a declaration before the statement that a list is at."""
        self.writer.place(statement, self.span(node))
        frame.body.insert(frame.start, statement)
        frame.start += 1

    def bind(self, value: Scalar, name: str, node: ast.AST) -> Scalar:
        """The value in a variable of its own, evaluated here."""
        fresh = self.writer.fresh_name(name)
        self.emit(n.Let(fresh, value.expr), node)
        return Scalar(n.Var(fresh), value.dtype)

    def held(self, value: Scalar, name: str, node: ast.AST) -> Scalar:
        """The value as something that may be used several times."""
        return value if value.is_cheap else self.bind(value, name, node)

    def reusable(self, value: Value, name: str, node: ast.AST) -> Value:
        """A value of any kind as something that may be used several times."""
        return each_part(value, lambda part: self.held(part, name, node))

    def settled(self, value: Value, name: str, node: ast.AST) -> Value:
        """A value of any kind that stays what it is when variables change."""
        return each_part(value, lambda part: part if is_literal(part) else self.bind(part, name, node))

    def lookup(self, node: ast.Name) -> Value:
        """What a name means where it is read."""
        name = node.id
        if name in self.parameters:
            return self.parameters[name]
        if name in self.scopes.locals:
            key = self.frame_of(name).key, name
            if key in self.arrays:
                return self.arrays[key]
            if key not in self.variables:
                # Only what nothing reaches can be read before it has a value, and not have been refused.
                raise self.error(
                    node, f"'{name}' has no value here, which nothing reaches.", "remove what is unreachable."
                )
            return Scalar(n.Var(self.variables[key].name), self.variables[key].dtype)
        return self.outside(node)

    def outside(self, node: ast.Name) -> Value:
        """What a name means that the function does not define: from its closure, its module, or Python."""
        function: FunctionType = self.source.function
        free = function.__code__.co_freevars
        space: Mapping[str, Any] | CellType
        if node.id in free:
            space = (function.__closure__ or ())[free.index(node.id)]
            value = _contents(space)
        else:
            space = function.__globals__ if node.id in function.__globals__ else vars(builtins)
            value = space.get(node.id, _MISSING)
        if value is _MISSING:
            known: Iterable[str] = [*self.scopes.locals, *function.__globals__, *INTRINSICS]
            near = nearest_word(node.id, known)
            fix = f"did you mean '{near}'?" if near else "give it a value before, or take it as a parameter."
            raise self.error(node, f"'{node.id}' is not defined.", fix)
        return self.wrap(value, Capture(space, node.id, value), node)

    def attribute(self, owner: ModuleType | type, node: ast.Attribute) -> Value:
        """A name of a module or of a class."""
        value = getattr(owner, node.attr, _MISSING)
        if value is _MISSING:
            near = nearest_word(node.attr, dir(owner))
            kind = "module" if isinstance(owner, ModuleType) else "class"
            fix = f"did you mean '{near}'?" if near else f"use a name that the {kind} has."
            raise self.error(node, f"{kind} '{owner.__name__}' has no '{node.attr}'.", fix)
        space = vars(owner) if isinstance(owner, ModuleType) else owner
        return self.wrap(value, Capture(space, node.attr, value), node)

    def wrap(self, value: Any, capture: Capture, node: ast.AST) -> Value:
        """A Python object as part of the translation; numbers and functions are remembered, for they may change."""
        if isinstance(value, (bool, int, float, np.generic, tuple, str, bytes, Function)):
            self.writer.captures.append(capture)
        if isinstance(value, (bool, int, float, np.generic, tuple)):
            return self._constant(value, capture.name, node)
        if isinstance(value, (str, bytes, DType, Intrinsic, Function, ModuleType)) or id(value) in PLAIN_FUNCTIONS:
            return Known(value)
        if isinstance(value, type) and not issubclass(value, np.generic):
            return Known(value)
        raise self.unusable(value, capture.name, node)

    def _constant(self, value: Any, name: str, node: ast.AST) -> Value:
        if isinstance(value, (bool, np.bool_)):
            return literal(bool(value), DType.BOOL)
        if isinstance(value, np.generic):
            dtype = next((d for d in DType if d.storage == value.dtype and d is not DType.BF16), None)
            if dtype is not None:
                return literal(value.item(), dtype)
        elif isinstance(value, (int, float)):
            return Constant(int(value) if isinstance(value, int) else float(value))
        elif isinstance(value, tuple):
            return Items(tuple(self._constant(item, name, node) for item in value))
        raise self.unusable(value, name, node)

    def unusable(self, value: Any, name: str, node: ast.AST) -> KernelError:
        """The error for a Python object that a kernel cannot use."""
        kind = type(value).__name__
        article = "an" if kind[0] in "aeiouAEIOU" or kind.startswith("nd") else "a"
        if isinstance(value, (np.ndarray, list, dict, set, bytearray)):
            return self.error(
                node,
                f"'{name}' is {article} {kind} from outside the kernel, which may change between calls.",
                "pass it as an argument; numbers and tuples of numbers may come from outside.",
            )
        if callable(value):
            near = _own_name(value, name)
            fix = f"use vyre.{near}." if near else "make it a @vyre.function, or write its work here."
            return self.error(node, f"'{name}' is no function of the language, and cannot be called here.", fix)
        return self.error(
            node, f"'{name}' is {article} {kind}, which a kernel cannot use.", "pass numbers and arrays as arguments."
        )


def _own_name(value: Any, name: str) -> str | None:
    """What vyre calls a function or a type that others have too."""
    if isinstance(value, type) and issubclass(value, np.generic):
        return next((d.label for d in DType if d.storage == np.dtype(value) and d is not DType.BF16), None)
    name = getattr(value, "__name__", name)
    return name if name in INTRINSICS else None


def _unused(wanted: str, taken: set[str], reserved: frozenset[str]) -> str:
    base = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in wanted)[: MAX_NAME_LENGTH - 12]
    name, number = base if base not in RESERVED else f"{base}_", 1
    while name in taken or name in reserved:
        number += 1
        name = f"{base}_{number}"
    taken.add(name)
    return name


def _no_inlining(*_: Any) -> NoReturn:
    raise NotImplementedError("the writer was not told how to inline")


def _contents(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _MISSING
