"""Generated variables and buffers of segments, declared only in the segments that use them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.buffers import BufferDecl


class GeneratedNames:
    """Generated variables, whose values may use the variables before them, and generated buffers."""

    def __init__(self, variables: Mapping[str, n.Expr], buffers: Sequence[BufferDecl]) -> None:
        self._variables = variables
        self._buffers = buffers
        self._names = {*variables, *(decl.name for decl in buffers)}

    def used_in(self, statements: Iterable[n.Stmt]) -> frozenset[str]:
        """Return the generated names that occur in ``statements``."""
        used: set[str] = set()
        for statement in walk.statements(statements):
            match statement:
                case n.Store():
                    used.add(statement.buffer)
                case n.CopyBytes():
                    used.update((statement.source, statement.destination))
            for root in walk.operands(statement):
                for node in walk.postorder(root):
                    match node:
                        case n.Var():
                            used.add(node.name)
                        case n.Load() | n.Atomic():
                            used.add(node.buffer)
        return frozenset(self._names & used)

    def declare(self, used: Iterable[str]) -> tuple[list[n.Stmt], list[BufferDecl]]:
        """Return declarations of the used variables and of the variables they need, and the used buffers."""
        wanted = set(used)
        declarations: list[n.Stmt] = []
        for name, value in reversed(list(self._variables.items())):
            if name in wanted:
                declarations.append(n.Let(name, value))
                wanted |= {node.name for node in walk.postorder(value) if isinstance(node, n.Var)}
        return declarations[::-1], [decl for decl in self._buffers if decl.name in wanted]
