"""Asynchronous transfers as plain copies, so that they can be pending across a cut.

The issue copies the source into a captured row of the invocation; the wait copies the row to the destination. If the
source is never written, nothing is captured and the wait copies from the source itself. Offsets, sizes and, where
several issues share a tag, the number of the issue are variables, which cross cuts like all others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from vyre.analyze.effects import written_buffers
from vyre.analyze.liveness import TRANSFER
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.buffers import BufferDecl
from vyre.ir.launch import Launch
from vyre.ir.nodes import lit
from vyre.ir.program import Program
from vyre.lower.fresh_names import FreshNames

Issue = n.AsyncLoad | n.AsyncStore


class Capture(msgspec.Struct, frozen=True):
    """A generated buffer with a row of bytes per invocation, captured by a transfer to ``destination``.

    A row is as long as the transfer if ``size`` is a compile-time constant, and never longer than the destination.
    """

    buffer: str
    destination: BufferDecl
    size: int | None

    def row_bytes(self) -> n.Expr:
        if self.size is not None:
            return lit(self.size)
        return n.BinOp("sat_mul", n.BufLen(self.destination.name), lit(self.destination.dtype.bytes))

    def row_words(self) -> n.Expr:
        """Return the length of a row in whole words, so that no two invocations write to one word."""
        if self.size is not None:
            return lit(-(-self.size // 4))
        return n.BinOp("shr", n.BinOp("sat_add", self.row_bytes(), lit(3)), lit(2))

    def words(self, launch: Launch) -> int:
        size = self.size
        if size is None:
            size = launch.counts[self.destination.name] * self.destination.dtype.bytes
        return -(-size // 4) * launch.invocations


def pending_tags(live: Mapping[int, Iterable[str]]) -> set[str]:
    """Return the tags of transfers that may be pending at a cut, from the liveness facts there."""
    return {fact[1:] for facts in live.values() for fact in facts if fact.startswith(TRANSFER)}


def carry_transfers(
    program: Program, tags: set[str], names: FreshNames, row: str
) -> tuple[Program, tuple[Capture, ...]]:
    """Return the program with the transfers of ``tags`` as copies, and the captures; ``row`` names the row variable."""
    return _TransferCarrier(program, tags, names, row).run()


class _TransferCarrier:
    def __init__(self, program: Program, tags: set[str], names: FreshNames, row: str) -> None:
        self.program = program
        self.tags = tags
        self.names = names
        self.row = row
        # A trap handler may change any buffer at a resume.
        self.changing = written_buffers(program)
        if program.stats().has(n.Resume):
            self.changing = frozenset(program.buffers_by_name)
        self.captures: list[Capture] = []
        self.offsets: dict[str, str] = {}
        self.sizes: dict[str, str] = {}
        self.selected: dict[str, str] = {}
        # For each tag, the copies that a wait may have to make.
        self.completions: dict[str, list[n.CopyBytes]] = {}
        self.seen: dict[str, int] = {}

    def run(self) -> tuple[Program, tuple[Capture, ...]]:
        issues = [s for s in walk.statements(self.program.entry) if isinstance(s, Issue) and s.tag in self.tags]
        tables = ((self.offsets, "offset"), (self.sizes, "size"), (self.selected, "transfer"))
        declarations: list[n.Stmt] = []
        for tag, count in Counter(issue.tag for issue in issues).items():
            for table, hint in tables if count > 1 else tables[:2]:
                table[tag] = self.names.make(hint)
                declarations.append(n.Let(table[tag], lit(0)))
        for issue in issues:
            self.completions.setdefault(issue.tag, []).append(self._completion(issue))
        entry = walk.rewrite(self.program.entry, on_statement=self._replace)
        return self.program.with_entry((*declarations, *entry)), tuple(self.captures)

    def _completion(self, issue: Issue) -> n.CopyBytes:
        """Return the copy at the wait; add the capture that it needs."""
        offset, size = n.Var(self.offsets[issue.tag]), n.Var(self.sizes[issue.tag])
        loading = isinstance(issue, n.AsyncLoad)
        place = lit(0) if loading else offset
        if issue.source not in self.changing:
            return n.CopyBytes(issue.source, issue.destination, offset if loading else lit(0), place, size)
        destination = self.program.buffer(issue.destination)
        length = None
        if isinstance(issue.size, n.Lit):
            length = issue.size.bits
            if destination.count:
                length = min(length, destination.count * destination.dtype.bytes)
        capture = Capture(self.names.make("captured"), destination, length)
        self.captures.append(capture)
        row = n.Var(self.row) * capture.row_words() * 4
        return n.CopyBytes(capture.buffer, issue.destination, row, place, n.BinOp("min", size, capture.row_bytes()))

    def _replace(self, statement: n.Stmt) -> Iterable[n.Stmt]:
        match statement:
            case n.AsyncLoad() | n.AsyncStore() if statement.tag in self.tags:
                return self._issue(statement)
            case n.AsyncWait(tag) if tag in self.tags:
                completions = self.completions.get(tag, [])
                if len(completions) == 1:
                    return completions
                selected = n.Var(self.selected[tag])
                return [n.If(selected.eq(number), (copy,)) for number, copy in enumerate(completions)]
        return (statement,)

    def _issue(self, issue: Issue) -> Iterable[n.Stmt]:
        tag = issue.tag
        number = self.seen[tag] = self.seen.get(tag, -1) + 1
        completion = self.completions[tag][number]
        yield n.Assign(self.offsets[tag], issue.offset)
        yield n.Assign(self.sizes[tag], issue.size)
        if len(self.completions[tag]) > 1:
            yield n.Assign(self.selected[tag], lit(number))
        if completion.source != issue.source:
            start = n.Var(self.offsets[tag]) if isinstance(issue, n.AsyncLoad) else lit(0)
            yield n.CopyBytes(issue.source, completion.source, start, completion.source_offset, completion.size)
