"""Functions as graphs of assignments and calls, as the analysis sees them.

A path is a variable and attributes of it: ``("self", "name")`` is ``self.name``. Its first element is its root:

* a plain name is a local variable or parameter, or a variable of an enclosing function;
* ``@module:name`` is a global variable or a class of a module, the same one in every function;
* ``%1``, ``%2`` ... are results of calls, ``%return`` is what a function returns.

An element that a constant selects from a variable has a path too: ``("options", "['name']")`` is ``options["name"]``,
and all of those together are ``("options", "[]")``. ``tracked`` says how long paths are. An untrusted path means that
its value, or anything in it that has no path of its own, may come from outside.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from taint_analysis.names import Class, Function, Module, Scope
    from taint_analysis.tables import Sink

Path: TypeAlias = tuple[str, ...]

MAX_LENGTH: Final = 3
RETURN: Final[Path] = ("%return",)
ITEMS: Final = "[]"


@dataclass(frozen=True, slots=True)
class Source:
    """Untrusted data that begins at an expression."""

    label: str
    syntax: ast.AST


Dependency: TypeAlias = Path | Source


class Value(NamedTuple):
    """What the value of an expression is made of.

    As an operand, it is untrusted if one of ``dependencies`` is. A variable that it is assigned to is untrusted if one
    of ``own`` is, which is the same where it is None; attributes and elements are assigned one by one, as
    ``attribute`` says. ``alias`` is the path of an expression that is one, ``fields`` are the attributes and elements
    of an object that the expression makes, and ``items`` the values of a list or tuple, for targets that unpack it.
    """

    dependencies: tuple[Dependency, ...] = ()
    alias: Path | None = None
    fields: dict[str, Value] | None = None
    items: tuple[Value, ...] | None = None
    own: tuple[Dependency, ...] | None = None

    def attribute(self, suffix: Path) -> tuple[Dependency, ...]:
        """What makes an attribute untrusted, apart from the value as a whole. An empty suffix is the whole."""
        if not suffix:
            return self.dependencies if self.own is None else self.own
        if self.alias is not None:
            path = self.alias + suffix
            return (path,) if tracked(path) == path else ()
        if self.fields is not None and suffix[0] in self.fields:
            inner = self.fields[suffix[0]]
            return inner.attribute(suffix[1:]) if len(suffix) > 1 else inner.dependencies
        return ()


HARMLESS: Final = Value()


@cache
def tracked(path: Path) -> Path:
    """The longest prefix of a path that is told apart: two attributes, or one element of a variable."""
    for position, part in enumerate(path[:MAX_LENGTH]):
        if part[0] == "[":
            return path[: max(position, 2)]
    return path[:MAX_LENGTH]


@cache
def path_value(path: Path) -> Value:
    """The value at a path: untrusted if the path is, or what it is an attribute or element of, or an element of it."""
    kept = tracked(path)
    own = tuple(kept[:length] for length in range(1, len(kept) + 1))
    if kept != path:
        return Value(own)
    return Value((*own, (*path, ITEMS)) if len(path) == 1 else own, path, own=own)


def item(key: str | int) -> str:
    """The attribute that an element with a constant key or index is."""
    return f"[{key!r}]"


def items_value(fields: dict[str, Value], others: Iterable[Value] = ()) -> Value:
    """The value of a container that is written out, with elements of constant keys and others."""
    everything = union(fields.values())
    rest = union(others)
    return Value(union((everything, rest)).dependencies, fields={**fields, ITEMS: everything}, own=rest.dependencies)


def union(values: Iterable[Value]) -> Value:
    """A value that is untrusted if one of these is."""
    found = [value for value in values if value.dependencies]
    if not found:
        return HARMLESS
    if len(found) == 1:
        return Value(found[0].dependencies)
    return Value(tuple(dict.fromkeys(one for value in found for one in value.dependencies)))


class Assignment(NamedTuple):
    """``target`` gets a value. A weak assignment adds to what the target holds, as ``append`` does.

    One that does not rebind the target is a test that found it harmless.
    """

    target: Path
    value: Value
    strong: bool
    rebinds: bool = True


class SinkCall(NamedTuple):
    """A call of a dangerous function: the value that must not be untrusted."""

    name: str
    sink: Sink
    value: Value
    syntax: ast.AST


class CallTarget(NamedTuple):
    """A function that a call may reach, with the values of its parameters. A constructor makes its first parameter."""

    function: Function
    arguments: dict[str, Value]
    constructs: bool


class Call(NamedTuple):
    """A call of functions of the package. ``result`` is None for calls that never return here.

    These are calls that may happen later: of a function with the defaults of its definition.
    """

    result: Path | None
    targets: tuple[CallTarget, ...]
    syntax: ast.AST


@dataclass(slots=True, eq=False)
class Node:
    """A point of a graph and what happens there: assignments at the same time, or a call.

    ``successors`` come after it; ``handlers`` are reached from before it, when it raises an exception.
    """

    index: int
    syntax: ast.AST | None
    assignments: tuple[Assignment, ...] = ()
    sinks: tuple[SinkCall, ...] = ()
    call: Call | None = None
    successors: list[int] = field(default_factory=list)
    handlers: tuple[int, ...] = ()


@dataclass(slots=True, eq=False)
class Body:
    """The graph of a function or of the top level of a module. Node 0 is its start, node 1 its end."""

    name: str
    module: Module
    scope: Scope
    function: Function | None
    nodes: list[Node] = field(default_factory=list)
    # Variables of enclosing functions that it uses, with the scope that owns them.
    free: dict[str, Scope] = field(default_factory=dict)
    # Classes whose bodies are part of the graph.
    classes: list[Class] = field(default_factory=list)

    @property
    def parameters(self) -> list[str]:
        return self.function.parameters.names if self.function is not None else []

    @property
    def self_name(self) -> str | None:
        """The parameter that is the object of a method."""
        function = self.function
        return function.self_name if function is not None else None


def is_global(path: Path) -> bool:
    """Whether a path means the same in every function."""
    return path[0][0] == "@"


def is_temporary(path: Path) -> bool:
    """Whether a path is the result of a call."""
    return path[0][0] == "%"


def shown(path: Path) -> str:
    """A path as the program writes it."""
    root = path[0].rpartition(":")[2]
    if root[0] == "%":
        root = "the returned value" if path[0] == RETURN[0] else "the result"
    return root + "".join(one if one[0] == "[" else f".{one}" for one in path[1:] if one != ITEMS)
