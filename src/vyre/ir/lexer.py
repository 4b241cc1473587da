"""What are the words of a text? Tokens with their places, in batches, so that memory does not grow with the text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate, chain, compress, repeat
from typing import Final

# A token's text, and the characters where it starts and stops. The end of the text is an empty token.
Token = tuple[str, int, int]

_CHUNK: Final = 1 << 16

# Every character belongs to some piece, and the start of a piece is always a whole piece itself (an unfinished string,
# a number without its exponent): so a batch cut off anywhere is right but for its last piece.
_PIECE: Final = re.compile(
    r"""
      [ \t\r]+
    | \#[^\n]*+
    | x"[^"\n]*+"?
    | [A-Za-z_][A-Za-z0-9_]*+
    | 0[xX](?:[pP][+-]|\.(?!\.)|[0-9A-Za-z_])*+
    | [0-9](?:[eE][+-]|\.(?!\.)|[0-9A-Za-z_])*+
    | "(?:[^"\\\n]++|\\[^\n]?)*+"?
    | \.[A-Za-z_][A-Za-z0-9_]*+
    | <<|>>|<=|>=|==|!=|\.\.
    | .
    """,
    re.VERBOSE | re.DOTALL,
)
_SKIPPED: Final = frozenset(" \t\r#")


def tokens(text: str) -> Iterator[Token]:
    """All tokens of a text, then empty ones for ever; blanks and comments are left out, line ends are not."""
    return chain(chain.from_iterable(_batches(text)), repeat(("", len(text), len(text))))


def _batches(text: str) -> Iterator[Iterator[Token]]:
    position, size = 0, _CHUNK
    while position < len(text):
        pieces = _PIECE.findall(text[position : position + size])
        if position + size < len(text):
            if len(pieces) == 1:
                size *= 2
                continue
            pieces.pop()
        bounds = list(accumulate(map(len, pieces), initial=position))
        kept = [piece[0] not in _SKIPPED for piece in pieces]
        # Columns zipped on demand: a tuple for each token at once would cost more than all the rest.
        yield zip(compress(pieces, kept), compress(bounds, kept), compress(bounds[1:], kept), strict=True)
        position, size = bounds[-1], _CHUNK
