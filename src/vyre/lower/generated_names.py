"""What do segments have beside the program's own? Variables and buffers, declared only where they are used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.buffers import BufferDecl


class GeneratedNames:
    """GeneratedNames variables, each of which may need those before it, and generated buffers."""

    def __init__(self, variables: Mapping[str, n.Expr], buffers: Sequence[BufferDecl]) -> None:
        self._variables = variables
        self._buffers = buffers
        self._names = {*variables, *(decl.name for decl in buffers)}

    def used_in(self, statements: Iterable[n.Stmt]) -> frozenset[str]:
        """The generated names in statements."""
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
        """The declarations of generated variables that are used, and the generated buffers that are."""
        wanted = set(used)
        declarations: list[n.Stmt] = []
        for name, value in reversed(list(self._variables.items())):
            if name in wanted:
                declarations.append(n.Let(name, value))
                wanted |= {node.name for node in walk.postorder(value) if isinstance(node, n.Var)}
        return declarations[::-1], [decl for decl in self._buffers if decl.name in wanted]
