"""Normal form of programs before cutting: no calls, unique names, loop bounds that can be evaluated again.

The code after a branch or loop with cuts is duplicated for each of these cuts, since any may be the last one passed.
An extra cut in front of that code stops the duplication. Where cuts are cheap, one is inserted if the code is long.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from vyre.analyze.effects import assigned_variables
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.extensions import inline_calls
from vyre.ir.program import Program
from vyre.lower.cut_tree import Scope, is_cut
from vyre.lower.fresh_names import fresh_names, with_unique_names

_LONG_TAIL: Final = 16


def normalise(program: Program, scope: Scope) -> Program:
    """Return an equivalent program in normal form, for a launch whose grid is decided.

    Calls are inlined and names are unique. Indirect dispatches are removed: the grid is read once, before the launch.
    Loops that contain cuts have a literal or an immutable variable as their stop, because segments evaluate it again.
    """
    program = with_unique_names(inline_calls(program))
    names = fresh_names(program)
    changing = assigned_variables(program)
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
                if open_loops.pop() == cuts or _is_invariant(stop, changing):
                    return (statement,)
                last = names.make(f"{var}_stop")
                if isinstance(start, (n.Lit, n.Var)):
                    return n.Let(last, stop), n.Loop(var, start, n.Var(last), body)
                # Bind the start too, to keep the evaluation order of the bounds.
                first = names.make(f"{var}_start")
                return n.Let(first, start), n.Let(last, stop), n.Loop(var, n.Var(first), n.Var(last), body)
        return (statement,)

    entry = walk.rewrite(program.entry, on_statement=leave, on_enter=enter)
    return program.with_entry(entry if scope is Scope.GRID else _with_extra_barriers(entry))


def _with_extra_barriers(body: n.Body) -> n.Body:
    """Return the list with a barrier after each statement that may bypass its barriers, if a long tail follows.

    Control flow around barriers is uniform, so all invocations that have not returned reach the added barrier together.
    """
    done: list[n.Stmt] = []
    following, passes_more = 0, False
    for statement in reversed(body):
        if isinstance(statement, n.Barrier):
            following, passes_more = 0, False
        else:
            inside = list(walk.statements((statement,)))
            if any(isinstance(inner, n.Barrier) for inner in inside):
                fields, lists = walk.BODY_FIELDS[type(statement)], map(_with_extra_barriers, walk.bodies(statement))
                statement = msgspec.structs.replace(statement, **dict(zip(fields, lists, strict=True)))
                if _may_bypass_barriers(statement):
                    if passes_more or following > _LONG_TAIL:
                        done.append(n.Barrier())
                        following = 0
                    passes_more = True
            following += len(inside)
        done.append(statement)
    return tuple(reversed(done))


def _may_bypass_barriers(statement: n.Stmt) -> bool:
    """Whether control may pass through a statement without executing all of its barriers."""
    if isinstance(statement, (n.Block, n.Region)):
        return any(walk.bodies(inner) and _may_bypass_barriers(inner) for inner in statement.body)
    return any(isinstance(inner, n.Barrier) for inner in walk.statements((statement,)))


def _is_invariant(bound: n.Expr, changing: set[str]) -> bool:
    return isinstance(bound, n.Lit) or (isinstance(bound, n.Var) and bound.name not in changing)
