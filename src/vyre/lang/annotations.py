"""What may a kernel take? Scalars of a type, and arrays of a type and a rank that it reads, writes or both."""

from __future__ import annotations

import ast
import inspect
from types import FunctionType
from typing import Any, Final

import msgspec

from vyre.errors import KernelError
from vyre.ir.limits import MAX_ELEMENTS
from vyre.lang.source import Source
from vyre.semantics.types import DType

MAX_RANK: Final = 8
Sizes = tuple[int | None, ...]


class ArrayType(msgspec.Struct, frozen=True):
    """An array parameter: what it holds, how many axes it has, and what the kernel does with it.

    ``sizes`` are those of the axes that have one size in every call.
    """

    direction: Direction
    dtype: DType
    rank: int = 1
    sizes: Sizes | None = None

    def __repr__(self) -> str:
        shape = "" if self.rank == 1 else f", {self.rank}"
        return f"{self.direction.name}[{self.dtype}{shape if self.sizes is None else f', {self.sizes}'}]"


class Direction(msgspec.Struct, frozen=True):
    """``In``, ``Out`` or ``InOut``: whether a kernel reads an array and whether it writes it."""

    name: str
    reads: bool
    writes: bool

    def __getitem__(self, item: Any) -> ArrayType:
        dtype, rank = item if isinstance(item, tuple) and len(item) == 2 else (item, 1)
        found = scalar_type(dtype)
        if found is None:
            raise KernelError(f"{self.name}[{_shown(dtype)}]: that is no element type.", _type_fix(dtype))
        if isinstance(rank, tuple) and 1 <= len(rank) <= MAX_RANK and all(map(_is_size, rank)):
            return ArrayType(self, found, len(rank), rank)
        if type(rank) is not int or not 1 <= rank <= MAX_RANK:
            raise KernelError(
                f"{self.name}[{found}, {rank!r}]: that is no rank and no shape.",
                f"give a number of axes from 1 to {MAX_RANK}, or their sizes: (None, 3).",
            )
        return ArrayType(self, found, rank)

    def __repr__(self) -> str:
        return f"vyre.{self.name}"


In: Final = Direction("In", True, False)
Out: Final = Direction("Out", False, True)
InOut: Final = Direction("InOut", True, True)


class Parameter(msgspec.Struct, frozen=True):
    """A parameter of a kernel or a function; without a type, a function takes what it is given."""

    name: str
    type: DType | ArrayType | None
    node: ast.arg
    default: Any = inspect.Parameter.empty


def scalar_type(item: object) -> DType | None:
    """The type that an object names: one of vyre's, or Python's bool."""
    return DType.BOOL if item is bool else item if isinstance(item, DType) else None


def parameters_of(source: Source) -> tuple[Parameter, ...]:
    """The parameters of a function, their annotations evaluated where the function was defined."""
    arguments = source.tree.args
    extra = arguments.vararg or arguments.kwarg or next(iter(arguments.kwonlyargs), None)
    if extra is not None:
        raise source.error(
            extra, f"parameter '{extra.arg}' is not a plain one.", "give every parameter a name and a place."
        )
    declared = [*arguments.posonlyargs, *arguments.args]
    defaults = source.function.__defaults__ or ()
    given = dict(zip((node.arg for node in declared[len(declared) - len(defaults) :]), defaults, strict=True))
    return tuple(
        Parameter(node.arg, _annotation(source, node), node, given.get(node.arg, inspect.Parameter.empty))
        for node in declared
    )


def _annotation(source: Source, node: ast.arg) -> DType | ArrayType | None:
    if node.annotation is None:
        return None
    # Python has evaluated it where it stands, unless that was put off.
    known = source.function.__annotations__.get(node.arg)
    item = evaluate(source, node.annotation) if known is None or isinstance(known, str) else known
    if isinstance(item, ArrayType):
        return item
    if isinstance(item, Direction):
        raise source.error(
            node.annotation, f"{item.name} does not say what the array holds.", f"write {item.name}[f32]."
        )
    dtype = scalar_type(item)
    if dtype is None:
        raise source.error(node.annotation, f"'{source.segment(node.annotation)}' is no type of vyre.", _type_fix(item))
    return dtype


def evaluate(source: Source, node: ast.expr) -> Any:
    """The value of an annotation, as Python would find it where the function was defined."""
    function: FunctionType = source.function
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    try:
        code = compile(ast.Expression(node), source.path, "eval")
        value = eval(code, function.__globals__, {name: cell.cell_contents for name, cell in cells})
        return eval(value, function.__globals__) if isinstance(value, str) else value
    except KernelError as error:
        raise source.error(node, error.message, error.fix) from None
    except Exception as error:
        message = f"this annotation cannot be evaluated ({error})."
        is_hidden = isinstance(error, NameError) and function.__code__.co_flags & annotations.compiler_flag
        fix = "name it in the module: `from __future__ import annotations` hides what is local to a function."
        raise source.error(node, message, fix if is_hidden else "use a type of vyre, such as In[f32].") from None


def _is_size(size: object) -> bool:
    return size is None or (type(size) is int and 1 <= size <= MAX_ELEMENTS)


def _type_fix(item: object) -> str:
    if item is int:
        return "say which one: i32, i64, u32 or u64."
    if item is float:
        return "say which one: f32 or f64."
    return f"use one of {', '.join(dtype.label for dtype in DType)}; arrays are In[...], Out[...] or InOut[...]."


def _shown(item: object) -> str:
    return item.__name__ if isinstance(item, type) else repr(item)
