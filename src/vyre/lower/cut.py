"""Segments of a cut program: the continuation of each cut, as structured code.

The continuation of a cut is the rest of its list, then the rest of the list around that, and so on outwards. After a
cut in a loop that is the rest of the iteration, once, and then the loop from its next iteration. Where a segment
reaches a cut, it saves the state that is live there and ends. A launch of a segment therefore runs from one cut to the
next, independent of the segment before it.

Live variables are restored in the scope that declared them, so that later loops can declare their variables again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import msgspec

from vyre.errors import InvalidProgram
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.buffers import BufferDecl
from vyre.ir.limits import MAX_STATEMENTS
from vyre.ir.nodes import lit
from vyre.lower.cut_tree import BREAK, CONTINUE, Cut, CutList, CutTree, ExitPoint, Nest
from vyre.lower.fresh_names import FreshNames
from vyre.lower.spilling import Spills


class CutState(Protocol):
    """State that segments hand on: its ``spills``, and the code that saves and restores it.

    That code uses generated ``variables``, whose values may use the variables before them, and generated ``buffers``.
    """

    spills: Spills
    variables: dict[str, n.Expr]
    buffers: list[BufferDecl]

    def prologue(self, cut: Cut | None) -> list[n.Stmt]:
        """Return the first statements of the segment after a cut, or of the first segment."""
        ...

    def exit_code(self, point: ExitPoint) -> n.Body:
        """Return the statements that replace an exit point."""
        ...

    def reload(self, cut: Cut, name: str) -> n.Expr:
        """Return the value that a spilled variable had at a cut."""
        ...


class Piece(msgspec.Struct):
    """Statements of a segment; ``falls_through``: control can reach their end.

    ``jumps`` are the jumps they may make out of the loop around them, ``exit_points`` the numbers of the exit points in
    them, ``size`` their number, and ``height`` how deep their lists nest.
    """

    statements: list[n.Stmt]
    falls_through: bool = True
    jumps: int = 0
    exit_points: frozenset[int] = frozenset()
    size: int = 0
    height: int = 0


class Cutter:
    """Builder of the segments of a program."""

    def __init__(self, tree: CutTree, state: CutState, names: FreshNames) -> None:
        self.state = state
        self.names = names
        self.tree = tree
        self.pieces: dict[int, list[Piece]] = {}
        self.written = 0
        self.partial_names: dict[int, tuple[str, str]] = {}

    def first_segment(self) -> Piece:
        """Return the program from its start."""
        return self._count(self._rest(self.tree.root, 0))

    def segment(self, cut: Cut) -> Piece:
        """Return the program from a cut on."""
        inner, index = cut.owner, cut.index
        piece = self._after_cut(cut, inner, Piece([]), index + 1)
        while inner.parent is not None:
            nest = inner.parent
            inner = nest.owner
            piece = self._after_cut(cut, inner, self._rejoin(cut, nest, piece), nest.index + 1)
        return self._count(piece)

    def _count(self, piece: Piece) -> Piece:
        """Limit the total size: branches and loops with cuts are duplicated for each cut before them."""
        self.written += piece.size
        if self.written > 4 * MAX_STATEMENTS:
            raise InvalidProgram(
                f"cut at its barriers, the program has more than {4 * MAX_STATEMENTS:,} statements.",
                "put fewer barriers into branches that follow one another.",
            )
        return piece

    def _after_cut(self, cut: Cut, scope: CutList, done: Piece, index: int) -> Piece:
        """Return the rest of a scope after a cut in it: ``done``, then its items from ``index`` on."""
        rest = _sequence([done, self._rest(scope, index)])
        if not rest.statements:
            return rest
        restored = [s for name in scope.declared if (s := self._restored(cut, name)) is not None]
        return _sequence([_new_piece(restored), rest])

    def _restored(self, cut: Cut, name: str) -> n.Stmt | None:
        """Return the declaration that restores a variable after a cut; None if it is not live there."""
        spills = self.state.spills
        spill = spills.after(cut)
        if name in spill.declared_only:
            return n.Let(name, n.Lit(0, spills.types[name]))
        if name not in spill.restored:
            return None
        again = spills.recomputed.get(name)
        return again.statement if again is not None else n.Let(name, self.state.reload(cut, name))

    def _rest(self, scope: CutList, index: int) -> Piece:
        pieces = self.pieces.get(id(scope))
        if pieces is None:
            pieces = self.pieces[id(scope)] = [self._item(scope, index) for index in range(len(scope.items))]
        return _sequence(pieces[index:])

    def _item(self, scope: CutList, index: int) -> Piece:
        item = scope.items[index]
        match item:
            case ExitPoint():
                exit_code = list(self.state.exit_code(item))
                return _new_piece(exit_code, falls_through=False, exit_points=frozenset((item.number,)))
            case Nest():
                return self._nest(item)
        falls_through = not isinstance(item, (n.Break, n.Continue, n.Return))
        return Piece([item], falls_through, scope.jumps[index], frozenset(), scope.sizes[index], scope.heights[index])

    def _nest(self, nest: Nest) -> Piece:
        """Return a statement with its exit points replaced."""
        lists = [self._rest(inner, 0) for inner in nest.lists]
        bodies = dict(zip(walk.BODY_FIELDS[type(nest.statement)], map(_body, lists), strict=True))
        statement = msgspec.structs.replace(nest.statement, **bodies)
        inside = _sequence(map(_falling_through, lists))
        if not isinstance(statement, (n.Loop, n.While)):
            inside.falls_through = any(part.falls_through for part in lists)
            for part in lists:
                inside.jumps |= part.jumps
        return _wrapped(inside, [statement])

    def _rejoin(self, cut: Cut, nest: Nest, inside: Piece) -> Piece:
        """Return the rest of a statement after a cut inside it; ``inside`` is the rest of the list with the cut."""
        match nest.statement:
            case n.Region(generator, source_region):
                return _wrapped(inside, [n.Region(generator, source_region, _body(inside))])
            case n.Block() | n.If():
                return _wrapped(inside, [n.Block(_body(inside))])
            case n.Loop(var, _, stop):
                following = self._rest(nest.lists[0], 0)
                start = self.state.reload(cut, var) + 1
                return self._rejoin_loop(nest, inside, following, n.Loop(var, start, stop, _body(following)))
            case n.While(condition):
                following = self._rest(nest.lists[0], 0)
                return self._rejoin_loop(nest, inside, following, n.While(condition, _body(following)))
        raise TypeError(f"{type(nest.statement).__name__} holds no lists")

    def _rejoin_loop(self, nest: Nest, inside: Piece, following: Piece, loop: n.Stmt) -> Piece:
        """Return the rest of an iteration, then the ``loop`` from its next iteration, whose body is ``following``.

        The rest of the iteration is a loop that runs once if it contains jumps; a break also skips the next iterations.
        """
        once, left = self._names_for(nest)
        body = _body(inside)
        goes_on = inside.falls_through or bool(inside.jumps & CONTINUE)
        leaves = bool(inside.jumps & BREAK)
        statements: list[n.Stmt] = []
        if goes_on and leaves:
            statements.append(n.Let(left, lit(False)))
            body = _with_break_flag(body, left)
            loop = n.If(n.UnOp("lnot", n.Var(left)), (loop,))
        statements.append(n.Loop(once, lit(0), lit(1), body) if inside.jumps else n.Block(body))
        parts = [_wrapped(_falling_through(inside), statements)]
        if goes_on:
            parts.append(_wrapped(_falling_through(following), [loop], 2 if leaves else 1))
        whole = _sequence(parts)
        whole.falls_through = goes_on or leaves
        return whole

    def _names_for(self, nest: Nest) -> tuple[str, str]:
        names = self.partial_names.get(id(nest))
        if names is None:
            names = self.partial_names[id(nest)] = self.names.make("once"), self.names.make("left")
        return names


def _new_piece(
    statements: list[n.Stmt], *, falls_through: bool = True, exit_points: frozenset[int] = frozenset()
) -> Piece:
    """Return a piece of new statements, whose lists nest at most one deep."""
    return Piece(statements, falls_through, 0, exit_points, len(statements), 1)


def _body(piece: Piece) -> n.Body:
    return tuple(piece.statements)


def _wrapped(inside: Piece, statements: list[n.Stmt], depth: int = 1) -> Piece:
    """Return the statements that enclose a piece ``depth`` lists deep; an empty piece stays empty."""
    if not inside.statements:
        return inside
    size, height = inside.size + len(statements), inside.height + depth
    return msgspec.structs.replace(inside, statements=statements, size=size, height=height)


def _falling_through(piece: Piece) -> Piece:
    """Return the piece as part of a statement that control can always pass, without jumps out of it."""
    return msgspec.structs.replace(piece, falls_through=True, jumps=0)


def _sequence(pieces: Iterable[Piece]) -> Piece:
    """Concatenate pieces, up to the first whose end is unreachable."""
    whole = Piece([])
    exit_points: set[int] = set()
    for piece in pieces:
        whole.statements += piece.statements
        whole.jumps |= piece.jumps
        whole.size += piece.size
        whole.height = max(whole.height, piece.height)
        exit_points |= piece.exit_points
        if not piece.falls_through:
            whole.falls_through = False
            break
    whole.exit_points = frozenset(exit_points)
    return whole


def _with_break_flag(body: n.Body, left: str) -> n.Body:
    """Return the body with ``left`` set before every break out of the loop around it."""

    def changed(statement: n.Stmt) -> Iterable[n.Stmt]:
        match statement:
            case n.Break():
                return n.Assign(left, lit(True)), statement
            case n.If() | n.Block() | n.Region():
                names, inner = walk.BODY_FIELDS[type(statement)], walk.bodies(statement)
                lists = {name: _with_break_flag(part, left) for name, part in zip(names, inner, strict=True)}
                return (msgspec.structs.replace(statement, **lists),)
        return (statement,)

    return tuple(new for statement in body for new in changed(statement))
