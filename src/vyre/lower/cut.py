"""How is what follows a cut written as a program of its own?

The segment of a cut is its continuation, structured again: the rest of the list behind the cut, then the rest of the
list around that, and so on outwards. Behind a cut in a loop that is the rest of the pass, once, and then the loop
from its next pass. Wherever a segment comes to a cut, it saves what is needed there and ends. So a launch of a
segment goes from one cut to the next, and nothing in it asks where it came from.

Variables that are needed are given back in the scope that declared them, so that the loops behind can declare
theirs again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import msgspec

from vyre.errors import InvalidProgram
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.limits import MAX_STATEMENTS
from vyre.ir.nodes import lit
from vyre.lower.cut_tree import BREAK, CONTINUE, Cut, CutList, CutTree, ExitPoint, Nest
from vyre.lower.fresh_names import FreshNames
from vyre.lower.generated_names import GeneratedNames
from vyre.lower.spilling import Spills
from vyre.semantics.scalars import to_bits, zero


class CutState(Protocol):
    """How values get from one segment to the next. Segments have ``generated`` names that are not the program's own."""

    spills: Spills
    generated: GeneratedNames

    def prologue(self, cut: Cut | None) -> list[n.Stmt]:
        """What the segment behind a cut, or the first one, starts with."""
        ...

    def exit_code(self, point: ExitPoint) -> n.Body:
        """What an invocation does at a point instead of going on."""
        ...

    def reload(self, cut: Cut, name: str) -> n.Expr:
        """The value that a variable had at a cut at which it is needed."""
        ...


class Piece(msgspec.Struct):
    """Statements of a segment. ``falls_through`` says whether control can reach their end.

    ``jumps`` are the jumps they may make out of the loop around them; ``exit_points`` the exit_points in them, by number;
    ``generated`` the names in them that are not the program's own; ``size`` counts them; lists nest ``height`` deep.
    """

    statements: list[n.Stmt]
    falls_through: bool = True
    jumps: int = 0
    exit_points: frozenset[int] = frozenset()
    generated: frozenset[str] = frozenset()
    size: int = 0
    height: int = 0


class Cutter:
    """Writes the segments of a program; ``scans_items`` says that its own statements have generated names too."""

    def __init__(self, tree: CutTree, state: CutState, names: FreshNames, *, scans_items: bool) -> None:
        self.state = state
        self.names = names
        self.tree = tree
        self.scans_items = scans_items
        self.pieces: dict[int, list[Piece]] = {}
        self.written = 0
        self.partial_names: dict[int, tuple[str, str]] = {}

    def first_segment(self) -> Piece:
        """The program from its start."""
        return self._count(self._rest(self.tree.root, 0))

    def segment(self, cut: Cut) -> Piece:
        """The program from behind a cut."""
        inner, index = cut.owner, cut.index
        piece = self._after_cut(cut, inner, Piece([]), index + 1)
        while inner.parent is not None:
            nest = inner.parent
            inner = nest.owner
            piece = self._after_cut(cut, inner, self._rejoin(cut, nest, piece), nest.index + 1)
        return self._count(piece)

    def _count(self, piece: Piece) -> Piece:
        """Branches and loops with cuts are written once for each cut before them, which has to have an end."""
        self.written += piece.size
        if self.written > 4 * MAX_STATEMENTS:
            raise InvalidProgram(
                f"cut at its barriers, the program has more than {4 * MAX_STATEMENTS:,} statements.",
                "put fewer barriers into branches that follow one another.",
            )
        return piece

    def _after_cut(self, cut: Cut, scope: CutList, done: Piece, index: int) -> Piece:
        """What a scope still has to run behind a cut in it: ``done``, and its items from an index on."""
        rest = _sequence([done, self._rest(scope, index)])
        if not rest.statements:
            return rest
        restored = [s for name in scope.declared if (s := self._restored(cut, name)) is not None]
        return _sequence([self._generated_piece(restored), rest])

    def _restored(self, cut: Cut, name: str) -> n.Stmt | None:
        """The declaration that gives a variable its value back behind a cut; None where it is not needed there."""
        spills = self.state.spills
        spill = spills.at[cut.order - 1]
        if name in spill.blank:
            dtype = spills.facts.types[name]
            return n.Let(name, n.Lit(to_bits(zero(dtype), dtype), dtype))
        if name not in spill.restored:
            return None
        again = spills.recomputed.get(name)
        return again.statement if again is not None else n.Let(name, self.state.reload(cut, name))

    def _generated_piece(
        self, statements: list[n.Stmt], *, falls_through: bool = True, exit_points: frozenset[int] = frozenset()
    ) -> Piece:
        """New statements, in which lists nest one deep at most."""
        generated = self.state.generated.used_in(statements)
        return Piece(statements, falls_through, 0, exit_points, generated, len(statements), 1)

    def _rest(self, scope: CutList, index: int) -> Piece:
        pieces = self.pieces.get(id(scope))
        if pieces is None:
            pieces = self.pieces[id(scope)] = [self._item(scope, index) for index in range(len(scope.items))]
        return _sequence(pieces[index:])

    def _item(self, scope: CutList, index: int) -> Piece:
        item = scope.items[index]
        match item:
            case ExitPoint():
                return self._generated_piece(
                    list(self.state.exit_code(item)), falls_through=False, exit_points=frozenset((item.number,))
                )
            case Nest():
                return self._nest(item)
        falls_through = not isinstance(item, (n.Break, n.Continue, n.Return))
        generated = self.state.generated.used_in([item]) if self.scans_items else frozenset()
        return Piece(
            [item], falls_through, scope.jumps[index], frozenset(), generated, scope.sizes[index], scope.heights[index]
        )

    def _nest(self, nest: Nest) -> Piece:
        """A statement with its exit_points replaced."""
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
        """What stands for a statement behind a cut inside it, ``inside`` being the rest of the list with the cut."""
        match nest.statement:
            case n.Region(generator, source_region):
                return _wrapped(inside, [n.Region(generator, source_region, _body(inside))])
            case n.Block() | n.If():
                return _wrapped(inside, [n.Block(_body(inside))])
            case n.Loop(var, _, stop):
                following = self._rest(nest.lists[0], 0)
                start = self.state.reload(cut, var) + 1
                generated = following.generated | self.state.generated.used_in([n.Let(var, start)])
                statement = n.Loop(var, start, stop, _body(following))
                return self._rejoin_loop(
                    nest, inside, msgspec.structs.replace(following, generated=generated), statement
                )
            case n.While(condition):
                following = self._rest(nest.lists[0], 0)
                return self._rejoin_loop(nest, inside, following, n.While(condition, _body(following)))
        raise TypeError(f"{type(nest.statement).__name__} holds no lists")

    def _rejoin_loop(self, nest: Nest, inside: Piece, following: Piece, loop: n.Stmt) -> Piece:
        """The rest of a pass, and then the ``loop`` from its next pass, whose body is ``following``.

        A jump in the rest of the pass is one out of a loop that runs once; a break also passes over the next passes.
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


def _body(piece: Piece) -> n.Body:
    return tuple(piece.statements)


def _wrapped(inside: Piece, statements: list[n.Stmt], depth: int = 1) -> Piece:
    """Statements around a piece, in lists that deep; nothing, if the piece is nothing."""
    if not inside.statements:
        return inside
    size, height = inside.size + len(statements), inside.height + depth
    return msgspec.structs.replace(inside, statements=statements, size=size, height=height)


def _falling_through(piece: Piece) -> Piece:
    """The piece as the part of a statement that control passes, however it passes the piece."""
    return msgspec.structs.replace(piece, falls_through=True, jumps=0)


def _sequence(pieces: Iterable[Piece]) -> Piece:
    """Pieces one after another, up to the first whose end nothing reaches."""
    whole = Piece([])
    exit_points: set[int] = set()
    generated: set[str] = set()
    for piece in pieces:
        whole.statements += piece.statements
        whole.jumps |= piece.jumps
        whole.size += piece.size
        whole.height = max(whole.height, piece.height)
        exit_points |= piece.exit_points
        generated |= piece.generated
        if not piece.falls_through:
            whole.falls_through = False
            break
    whole.exit_points, whole.generated = frozenset(exit_points), frozenset(generated)
    return whole


def _with_break_flag(body: n.Body, left: str) -> n.Body:
    """The body with ``left`` set before every break out of the loop around it."""

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
