"""Fresh names, and programs in which every variable has a unique name."""

from __future__ import annotations

from collections.abc import Iterable

from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.extensions import declared_names
from vyre.ir.limits import MAX_NAME_LENGTH
from vyre.ir.program import Program


class FreshNames:
    """Source of unused names: the hint itself, or the hint and a number."""

    def __init__(self, taken: Iterable[str]) -> None:
        self.taken = set(taken)
        self.numbers: dict[str, int] = {}

    def make(self, hint: str) -> str:
        hint = hint[: MAX_NAME_LENGTH - 12]
        name = hint
        while name in self.taken:
            self.numbers[hint] = number = self.numbers.get(hint, 0) + 1
            name = f"{hint}_{number}"
        self.taken.add(name)
        return name


def fresh_names(program: Program) -> FreshNames:
    """Return a source of names that no buffer or variable of the program has."""
    variables = declared_names(walk.statements(program.entry))
    return FreshNames([*(decl.name for decl in program.buffers), *variables])


def with_unique_names(program: Program) -> Program:
    """Return the program with a unique name for each variable; the first variable with a name keeps it.

    Shadowing is illegal, so every use of a name refers to its latest declaration.
    """
    declared = list(declared_names(walk.statements(program.entry)))
    buffers = {decl.name for decl in program.buffers}
    if len(set(declared)) == len(declared) and buffers.isdisjoint(declared):
        return program
    fresh = fresh_names(program)
    seen = set(buffers)
    current: dict[str, str] = {}

    def declare(name: str) -> str:
        current[name] = fresh.make(name) if name in seen else name
        seen.add(name)
        return current[name]

    def rename_use(node: n.Expr) -> n.Expr:
        return n.Var(current[node.name]) if isinstance(node, n.Var) and current[node.name] != node.name else node

    def rename_declaration(statement: n.Stmt) -> n.Stmt:
        match statement:
            case n.Let(name, value):
                return n.Let(declare(name), value)
            case n.Assign(name, value):
                return n.Assign(current[name], value)
            case n.Loop(var, start, stop, body):
                return n.Loop(declare(var), start, stop, body)
        return statement

    return program.with_entry(walk.rewrite(program.entry, rename_use, on_enter=rename_declaration))
