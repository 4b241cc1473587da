"""What does a program look like before it is cut? As the cutter needs it: no calls, unique names, plain loop bounds."""

from __future__ import annotations

from collections.abc import Iterable

from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.extensions import inline_calls
from vyre.ir.program import Program
from vyre.lower.names import names_in, with_unique_names
from vyre.lower.tree import Scope, is_cut


def normalise(program: Program, scope: Scope) -> Program:
    """A program of the same meaning, once its grid is decided.

    Calls are inlined and names are unique. The grid is read once, by whoever launches, so no segment says it. Loops
    with cuts in them have a literal or an immutable variable as their stop, because later passes need it again.
    """
    program = with_unique_names(inline_calls(program))
    names = names_in(program)
    changing = {s.name for s in walk.statements(program.entry) if isinstance(s, n.Assign)}
    cuts = 0
    open_loops: list[int] = []

    def enter(statement: n.Stmt) -> n.Stmt:
        nonlocal cuts
        cuts += is_cut(statement, scope)
        if isinstance(statement, n.Loop):
            open_loops.append(cuts)
        return statement

    def leave(statement: n.Stmt) -> Iterable[n.Stmt]:
        match statement:
            case n.IndirectDispatch():
                return ()
            case n.Loop(var, start, stop, body):
                if open_loops.pop() == cuts or _stays(stop, changing):
                    return (statement,)
                last = names.make(f"{var}_stop")
                if isinstance(start, (n.Lit, n.Var)):
                    return n.Let(last, stop), n.Loop(var, start, n.Var(last), body)
                # The start too, so that the bounds are evaluated in their order.
                first = names.make(f"{var}_start")
                return n.Let(first, start), n.Let(last, stop), n.Loop(var, n.Var(first), n.Var(last), body)
        return (statement,)

    return program.with_entry(walk.rewrite(program.entry, on_statement=leave, on_enter=enter))


def _stays(bound: n.Expr, changing: set[str]) -> bool:
    return isinstance(bound, n.Lit) or (isinstance(bound, n.Var) and bound.name not in changing)
