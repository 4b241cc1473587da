"""What stands next in a text? The token in hand, the plain things it can be, and what to say where it is wrong."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from sys import intern
from typing import Final, NoReturn

from vyre.errors import ParseError
from vyre.ir import limits
from vyre.ir import nodes as n
from vyre.ir.forms import Slot
from vyre.ir.lexer import tokens
from vyre.ir.literals import WORDS, BadLiteral, read_bytes, read_string
from vyre.ir.names import RESERVED, WORD, nearest_word
from vyre.ir.places import SourceMap, Span
from vyre.ir.render import render, shown_token
from vyre.semantics.types import DType

_MAX_INTEGER: Final = (1 << 63) - 1


class Reader:
    """A text being read: the token in hand (with its start and stop) and where the one before it stopped."""

    def __init__(self, text: str, name: str) -> None:
        self.text = text
        self.name = name
        self.start = self.stop = self.end = 0
        self.token = ""
        if len(text) > limits.MAX_TEXT_BYTES:
            self.fail(
                f"the text has {len(text):,} characters, and the limit is {limits.MAX_TEXT_BYTES:,}.",
                "split it into smaller programs.",
            )
        self.next_token = tokens(text).__next__
        self.spans = array("i")
        # Every constant and every variable of the text, by the token that stands for it.
        self.leaves: dict[str, n.Expr] = dict(WORDS)
        self.advance()

    def advance(self) -> None:
        self.end = self.stop
        self.token, self.start, self.stop = self.next_token()

    def fail(self, message: str, fix: str, start: int | None = None, stop: int | None = None) -> NoReturn:
        """Refuses the text, for what stands in a stretch of it (the token in hand, if not said)."""
        if start is None:
            start, stop = self.start, self.stop
        span = Span(start, start + 1 if stop is None else stop)
        source = SourceMap(self.name, self.text, array("i"), array("i"), array("i"), array("i"))
        line, column = source.line_and_column(start)
        rendered = render(source, span, "error", "parse", message, fix)
        raise ParseError(message, fix, line=line, column=column, rendered=rendered)

    def unexpected(self, wanted: str, fix: str) -> NoReturn:
        self.fail(f"expected {wanted}, found {shown_token(self.token)}.", fix)

    def unknown(self, what: str, word: str, candidates: Iterable[str], fix: str, start: int, stop: int) -> NoReturn:
        """Refuses a word that is none of the candidates, and says which one it resembles."""
        near = nearest_word(word, candidates)
        self.fail(f"{shown_token(word)} is not {what}.", f"did you mean '{near}'?" if near else fix, start, stop)

    def expect(self, token: str, fix: str) -> None:
        if self.token != token:
            self.unexpected(f"'{token}'", fix)
        self.advance()

    def skip_newlines(self) -> None:
        while self.token == "\n":
            self.advance()

    def identifier(self, wanted: str) -> str:
        """Reads the name of a variable, a buffer or a program."""
        token = self.token
        leaf = self.leaves.get(token)
        if leaf is None:
            leaf = self._new_name(token, wanted)
        elif type(leaf) is not n.Var:
            self._refuse_name(token, wanted)
        self.advance()
        return leaf.name

    def _new_name(self, token: str, wanted: str) -> n.Var:
        if WORD.fullmatch(token) is None or token in RESERVED:
            self._refuse_name(token, wanted)
        if len(token) > limits.MAX_NAME_LENGTH:
            self.fail(
                f"a name of {len(token):,} characters, and the limit is {limits.MAX_NAME_LENGTH}.",
                "choose a shorter name.",
            )
        leaf = self.leaves[token] = n.Var(intern(token))
        return leaf

    def _refuse_name(self, token: str, wanted: str) -> NoReturn:
        if token in RESERVED:
            self.fail(
                f"'{token}' is a reserved word, where {wanted} should be.", f"choose another name, such as '{token}_'."
            )
        self.unexpected(wanted, "write a name: letters, digits and '_', not a digit first.")

    def word(self, wanted: str, fix: str) -> str:
        """Reads any word, reserved or not."""
        token = self.token
        if WORD.fullmatch(token) is None:
            self.unexpected(wanted, fix)
        self.advance()
        return token

    def integer(self, wanted: str) -> int:
        """Reads a plain whole number."""
        start, sign = self.start, ""
        if self.token == "-":
            sign = "-"
            self.advance()
        token = self.token
        if not (token.isascii() and token.isdigit()):
            self.unexpected(wanted, "write a whole number, without a suffix.")
        if len(token) > 19 or int(token) > _MAX_INTEGER:
            self.fail(
                f"{shown_token(token)} is too large.", f"write a number up to {_MAX_INTEGER:,}.", start, self.stop
            )
        self.advance()
        return int(sign + token)

    def string(self, wanted: str) -> str:
        if not self.token.startswith('"'):
            self.unexpected(wanted, 'write a string in quotes, as in "name".')
        try:
            value = read_string(self.token)
        except BadLiteral as problem:
            self.fail(problem.message, problem.fix)
        self.advance()
        return value

    def payload(self) -> bytes:
        if not self.token.startswith('x"'):
            self.unexpected(Slot.BYTES.value, 'write pairs of hexadecimal digits, as in x"00ff".')
        try:
            value = read_bytes(self.token)
        except BadLiteral as problem:
            self.fail(problem.message, problem.fix)
        if len(value) > limits.MAX_PAYLOAD_BYTES:
            self.fail(
                f"a payload of {len(value):,} bytes, and the limit is {limits.MAX_PAYLOAD_BYTES:,}.",
                "keep large data in a buffer.",
            )
        self.advance()
        return value

    def dtype(self) -> DType:
        start, stop = self.start, self.stop
        labels = {dtype.label: dtype for dtype in DType}
        word = self.word("a type", f"write one of {', '.join(labels)}.")
        if word not in labels:
            self.unknown("a type", word, labels, f"write one of {', '.join(labels)}.", start, stop)
        return labels[word]

    def order(self) -> n.MemoryOrder:
        start, stop = self.start, self.stop
        orders = {order.value: order for order in n.MemoryOrder}
        fix = f"write one of {', '.join(orders)}, or nothing for seq_cst."
        word = self.word("a memory order", fix)
        if word not in orders:
            self.unknown("a memory order", word, orders, fix, start, stop)
        return orders[word]
