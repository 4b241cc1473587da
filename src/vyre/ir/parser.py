"""What program does a text stand for? ``parse`` reads what ``print_program`` writes, and what people write.

Statements are read with a stack of open lists, expressions by ``parse_expressions``; nothing recurses, and every limit
is enforced while reading. Any text gives a program or a ``ParseError`` that points at the first thing wrong with it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NoReturn

from vyre.errors import BadInputs
from vyre.ir import limits
from vyre.ir import nodes as n
from vyre.ir.buffers import Access, BufferDecl
from vyre.ir.forms import EXPRESSION_FORMS, STATEMENT_FORMS
from vyre.ir.names import KEYWORDS, nearest_word
from vyre.ir.parse_expressions import ExpressionReader
from vyre.ir.places import SourceMap, Span
from vyre.ir.program import DEFAULT_SUBGROUP_SIZE, Program
from vyre.ir.render import shown_token

_EXAMPLE_PROGRAM: Final = "program name(workgroup 64) { ... }"
_EXAMPLE_BUFFER: Final = "buffer 0 name: u32[] read"
_ENDS_STATEMENT: Final = frozenset(("\n", ";", "}", ""))
_ACCESS: Final = {access.value: access for access in Access}
_BUFFER_WORDS: Final = (*_ACCESS, "output", "live_out", "bytes", "hint")
_JUMPS: Final[dict[str, n.Stmt]] = {"break": n.Break(), "continue": n.Continue(), "return": n.Return()}
_STATEMENT_WORDS: Final = (*(KEYWORDS - {"in"}), "block", "region", "buffer", *STATEMENT_FORMS)


def parse(text: str, name: str = "<text>") -> Program:
    """The program that a text stands for, with the places of its nodes; ``name`` is what errors call the text."""
    if not isinstance(text, str):
        raise BadInputs(f"a {type(text).__name__} is no text.", "give the text of a program, as a str.")
    return _ProgramReader(text, name).program()


def parse_expression(text: str, name: str = "<text>") -> n.Expr:
    """The expression that a text stands for."""
    reader = ExpressionReader(text, name)
    expression = reader.expression(opened=1)
    if reader.token:
        reader.unexpected(
            "the end of the expression", "write an operator between two operands, and one expression only."
        )
    return expression


class _List:
    """A list of statements being read, and the statement that it will be part of.

    ``build`` makes that statement from the finished list; a list that is the ``else`` of an ``else if`` chain ends
    with its one statement, without a ``}`` of its own.
    """

    __slots__ = ("body", "build", "chained", "number", "opening", "takes_else")

    def __init__(
        self,
        number: int,
        build: Callable[[n.Body], Any],
        opening: int,
        *,
        takes_else: bool = False,
        chained: bool = False,
    ) -> None:
        self.number = number
        self.build = build
        self.opening = opening
        self.takes_else = takes_else
        self.chained = chained
        self.body: list[n.Stmt] = []


class _ProgramReader(ExpressionReader):
    def __init__(self, text: str, name: str) -> None:
        super().__init__(text, name)
        self.buffer_spans = array("i")
        self.statement_spans = array("i")
        self.first_expression = array("i")
        self.lists: list[_List] = []

    def program(self) -> Program:
        self.skip_newlines()
        start = self.start
        if self.token != "program":
            self.unexpected("'program'", f"begin with a header: {_EXAMPLE_PROGRAM}.")
        self.advance()
        name = self.identifier("the program's name")
        workgroup, subgroup = self._sizes()
        header = Span(start, self.end)
        opening = self.start
        self.expect("{", f"open the body: {_EXAMPLE_PROGRAM}.")
        self.lists.append(_List(-1, tuple, opening))
        buffers = self._buffers()
        entry = self._statements()
        self.skip_newlines()
        if self.token:
            self.unexpected("the end of the text", "keep one program in a text.")
        source = SourceMap(
            self.name,
            self.text,
            self.buffer_spans,
            self.statement_spans,
            self.first_expression,
            self.spans,
            header,
        )
        return Program(name, buffers, workgroup, entry, subgroup, source)

    def _sizes(self) -> tuple[tuple[int, int, int], int]:
        """Reads ``(workgroup X, Y, Z, subgroup N)``."""
        fix = "write the sizes: (workgroup 64), (workgroup 8, 8), (workgroup 64, subgroup 16)."
        self.expect("(", fix)
        self.skip_newlines()
        self.expect("workgroup", fix)
        axes: list[int] = []
        subgroup = DEFAULT_SUBGROUP_SIZE
        while True:
            self.skip_newlines()
            if axes and self.token == "subgroup":
                self.advance()
                self.skip_newlines()
                subgroup = self.integer("the size of a subgroup")
                self.skip_newlines()
                break
            if len(axes) == 3:
                self.unexpected("')'", "a workgroup has at most three axes.")
            axes.append(self.integer("the size of a workgroup"))
            self.skip_newlines()
            if self.token != ",":
                break
            self.advance()
        self.expect(")", fix)
        x, y, z = (*axes, 1, 1)[:3]
        return (x, y, z), subgroup

    def _buffers(self) -> tuple[BufferDecl, ...]:
        """Reads the declarations, and the first statement if its first word looks like one."""
        buffers: list[BufferDecl] = []
        while True:
            while self.token == "\n" or self.token == ";":
                self.advance()
            if self.token != "buffer":
                return tuple(buffers)
            start = self.start
            self.advance()
            if self.token in ("=", "["):
                self._statement_after("buffer", start)
                return tuple(buffers)
            if len(buffers) == limits.MAX_BUFFERS:
                self.fail(f"more than {limits.MAX_BUFFERS:,} buffers.", "join some of them.")
            buffers.append(self._buffer())
            self.buffer_spans.extend((start, self.end))
            self._end_of_statement("the declaration")

    def _buffer(self) -> BufferDecl:
        binding = self.integer("the buffer's binding")
        name = self.identifier("the buffer's name")
        self.expect(":", f"give the type: {_EXAMPLE_BUFFER}.")
        dtype = self.dtype()
        self.expect("[", f"give the element count in brackets, or nothing in them: {_EXAMPLE_BUFFER}.")
        self.skip_newlines()
        count = 0 if self.token == "]" else self.integer("an element count")
        self.skip_newlines()
        self.expect("]", f"give the element count in brackets: {_EXAMPLE_BUFFER}.")
        said: dict[str, Any] = {}
        hints: list[tuple[str, str]] = []
        while self.token not in _ENDS_STATEMENT:
            self._buffer_word(said, hints)
        if "access" not in said:
            if not said.get("is_output"):
                self.unexpected("the buffer's access", f"say one of {', '.join(_ACCESS)}, output.")
            said["access"] = Access.READ_WRITE
        return BufferDecl(name=name, binding=binding, dtype=dtype, count=count, hints=tuple(hints), **said)

    def _buffer_word(self, said: dict[str, Any], hints: list[tuple[str, str]]) -> None:
        """Reads one of the things that may follow a buffer's type."""
        start, stop = self.start, self.stop
        fix = f"write one of {', '.join(_BUFFER_WORDS)}."
        word = self.word("the buffer's access", fix)
        key: str
        value: Any
        match word:
            case "hint":
                hint = self.string("a hint's name") if self.token.startswith('"') else self.word("a hint's name", fix)
                hints.append((hint, self.string("a hint's value in quotes")))
                return
            case "output":
                key, value = "is_output", True
            case "live_out":
                key, value = "pipeline_live_out", True
            case "bytes":
                first = self.integer("the first byte")
                self.expect("..", "give a range of bytes: bytes 0..64.")
                key, value = "output_byte_range", (first, self.integer("the byte after the last"))
            case _ if word in _ACCESS:
                key, value = "access", _ACCESS[word]
            case _:
                self.unknown("something a buffer can be", word, _BUFFER_WORDS, fix, start, stop)
        if key in said:
            self.fail(f"'{word}' after another one of its kind.", "say it once.", start, stop)
        said[key] = value

    def _statements(self) -> n.Body:
        """Reads up to the ``}`` that closes the program."""
        while True:
            token = self.token
            if token == "\n" or token == ";":
                self.advance()
            elif token == "}":
                self.advance()
                frame = self.lists.pop()
                if not self.lists:
                    return tuple(frame.body)
                if not (frame.takes_else and self._else_follows(frame)):
                    self._close(frame)
            elif token == "":
                opening = self.lists[-1].opening
                self.fail("a '{' is opened here and never closed with '}'.", "write the '}'.", opening, opening + 1)
            else:
                start = self.start
                word = self.word("a statement", "write one, such as let x = 1, a[i] = x, if x < n { ... } or '}'.")
                self._statement_after(word, start)

    def _begin(self, start: int) -> int:
        """Numbers a statement that starts here."""
        number = len(self.first_expression)
        if len(self.lists) > limits.MAX_NESTING + 1:
            self.fail(
                f"nested more than {limits.MAX_NESTING} levels deep.", "make a smaller program of the inner part."
            )
        if number == limits.MAX_STATEMENTS:
            self.fail(f"more than {limits.MAX_STATEMENTS:,} statements.", "split it into smaller programs.")
        self.first_expression.append(len(self.spans) // 2)
        self.statement_spans.append(start)
        self.statement_spans.append(start)
        return number

    def _end(self, number: int, statement: n.Stmt) -> None:
        """Ends a statement, and the ``else if`` chain that it is the last part of."""
        while True:
            self.statement_spans[2 * number + 1] = self.end
            frame = self.lists[-1]
            frame.body.append(statement)
            if not frame.chained:
                return
            self.lists.pop()
            number, statement = frame.number, frame.build(tuple(frame.body))

    def _statement_after(self, word: str, start: int) -> None:
        """Reads the rest of a statement whose first word was read."""
        number = self._begin(start)
        statement: n.Stmt
        if word == "let":
            name = self.identifier("the variable's name")
            self.expect("=", "give the variable its value: let x = 1.")
            statement = n.Let(name, self.expression())
        elif self.token == "=":
            name = self._name_at(word, start).name
            self.advance()
            statement = n.Assign(name, self.expression())
        elif self.token == "[":
            name = self._name_at(word, start).name
            self.advance()
            index = self.expression(opened=1)
            self.skip_newlines()
            self.expect("]", "close the index: a[i] = x.")
            self.expect("=", "give the element a value: a[i] = x.")
            statement = n.Store(name, index, self.expression())
        elif word in _JUMPS:
            statement = _JUMPS[word]
        elif word == "grid_sync":
            statement = n.Barrier(n.MemoryOrder.GRID_SYNC)
        elif word == "barrier":
            statement = self._barrier()
        elif word in STATEMENT_FORMS and self.token == "(":
            statement = self.statement_call(word, start)
        else:
            self._open_list(word, number, start)
            return
        self._end(number, statement)
        self._end_of_statement("the statement")

    def _barrier(self) -> n.Stmt:
        if self.token != "(":
            return n.Barrier()
        self.advance()
        order = self.order()
        self.expect(")", "close it: barrier(acquire).")
        return n.Barrier(order)

    def _open_list(self, word: str, number: int, start: int) -> None:
        """Reads the head of a statement that holds statements, and its ``{``."""
        takes_else = False
        build: Callable[[n.Body], n.Stmt]
        match word:
            case "if":
                build, takes_else = partial(n.If, self.expression()), True
            case "while":
                build = partial(n.While, self.expression())
            case "for":
                name = self.identifier("the loop's variable")
                self.expect("in", "write the range: for i in 0 .. n { ... }.")
                first = self.expression()
                self.expect("..", "write the range: for i in 0 .. n { ... }.")
                build = partial(n.Loop, name, first, self.expression())
            case "block" if self.token == "{":
                build = n.Block
            case "region" if self.token.startswith('"'):
                generator = self.string("the region's generator")
                source = None
                if self.token == "from":
                    self.advance()
                    source = self.string("the region's source")
                build = partial(n.Region, generator, source)
            case _:
                self._refuse_statement(word, start)
        opening = self.start
        self.expect("{", "open the list of statements on the same line.")
        self.lists.append(_List(number, build, opening, takes_else=takes_else))

    def _else_follows(self, frame: _List) -> bool:
        """Goes on with the ``else`` of an ``if`` whose first list is finished, if there is one."""
        end = self.end
        separated = self.token in _ENDS_STATEMENT
        self.skip_newlines()
        if self.token != "else":
            self.end = end
            if not separated:
                self._end_of_statement("the statement")
            return False
        self.advance()
        build = partial(frame.build, tuple(frame.body))
        opening = self.start
        if self.token == "if":
            start = self.start
            self.lists.append(_List(frame.number, build, opening, chained=True))
            self.advance()
            self._open_list("if", self._begin(start), start)
            return True
        self.expect("{", "write else { ... } or else if x { ... }.")
        self.lists.append(_List(frame.number, build, opening))
        return True

    def _close(self, frame: _List) -> None:
        self._end(frame.number, frame.build(tuple(frame.body)))
        if not frame.takes_else:
            self._end_of_statement("the statement")

    def _end_of_statement(self, what: str) -> None:
        if self.token in _ENDS_STATEMENT:
            return
        if self.token.startswith(".") and self.token != "..":
            self.unexpected("the end of the line", "an axis belongs to an id: gid.x, lid.y, wg.z, num_wg.x.")
        self.unexpected(f"the end of {what}", "begin a new line, write ';' between two statements, or an operator.")

    def _refuse_statement(self, word: str, start: int) -> NoReturn:
        stop = start + len(word)
        if word == "buffer":
            self.fail(
                "a buffer is declared after a statement.",
                "declare all buffers before the first statement.",
                start,
                stop,
            )
        if word == "else":
            self.fail("an else without an if before it.", "write if x { ... } else { ... }.", start, stop)
        if self.token == "(" and word in EXPRESSION_FORMS:
            self.fail(
                f"{word}(...) is an expression, not a statement.", f"name its value: let x = {word}(...).", start, stop
            )
        near = nearest_word(word, _STATEMENT_WORDS)
        if near is None or near == word:
            fix = "write one, such as let x = 1, a[i] = x or if x < n { ... }."
        else:
            fix = f"did you mean '{near}'?"
        self.fail(f"{shown_token(word)} does not begin a statement.", fix, start, stop)
