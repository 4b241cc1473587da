"""Where does a kernel stand in its file? Its syntax tree, the stretch of each node, and errors that show it."""

from __future__ import annotations

import ast
import inspect
import os
from array import array
from itertools import accumulate
from types import FunctionType
from typing import Any

from vyre.errors import KernelError
from vyre.ir.places import SourceMap, Span
from vyre.ir.render import render


class Source:
    """The file of a function, read when the function is made into a kernel, and the function's tree."""

    def __init__(self, function: FunctionType) -> None:
        self.function = function
        code = function.__code__
        self.path = code.co_filename
        try:
            self.lines = inspect.findsource(function)[0]
        except (OSError, TypeError):
            raise KernelError(
                f"the source of '{function.__qualname__}' is not there to be read ({self.path}): "
                "kernels are translated from their text.",
                "write it in a file, or in a cell of a notebook.",
            ) from None
        self.text = "".join(self.lines)
        self.starts = [0, *accumulate(map(len, self.lines))]
        self.first_line = code.co_firstlineno
        self._tree: ast.FunctionDef | None = None

    @property
    def name(self) -> str:
        """The path as a person would write it from where the program runs."""
        relative = os.path.relpath(self.path) if os.path.isabs(self.path) else self.path
        return self.path if relative.startswith(os.pardir) else relative

    @property
    def tree(self) -> ast.FunctionDef:
        """The definition; line numbers are those of the file."""
        if self._tree is None:
            self._tree = self._parse()
        return self._tree

    @property
    def block(self) -> str:
        """The text of the definition."""
        return "".join(inspect.getblock(self.lines[self.first_line - 1 :]))

    def _parse(self) -> ast.FunctionDef:
        name, block = self.function.__name__, self.block
        # A definition inside another one is indented; under an `if` its columns stay as they are in the file.
        is_inner = block[:1] in (" ", "\t")
        try:
            parsed = ast.parse(f"if 1:\n{block}" if is_inner else block)
        except SyntaxError:
            raise self._unreadable(f"the text of '{name}' cannot be read on its own.") from None
        except RecursionError:
            raise self._unreadable(f"an expression in '{name}' is nested too deeply to be read.") from None
        ast.increment_lineno(parsed, self.first_line - (2 if is_inner else 1))
        body = parsed.body[0].body if is_inner and isinstance(parsed.body[0], ast.If) else parsed.body
        found = body[0] if body else None
        if isinstance(found, ast.FunctionDef) and found.name == name:
            return found
        if name == "<lambda>":
            raise self._unreadable("a lambda cannot be a kernel.")
        if isinstance(found, ast.AsyncFunctionDef):
            raise self._unreadable(f"'{name}' is an async function.")
        raise self._unreadable(
            f"line {self.first_line} of the file is not '{name}': it may have changed since it was loaded."
        )

    def _unreadable(self, message: str) -> KernelError:
        span = Span(self.starts[self.first_line - 1], self.starts[self.first_line])
        return self._error(span, message, "write it as a plain `def` of its own lines, and load the file again.")

    def span(self, node: ast.AST) -> Span:
        """The stretch of the file that a node came from."""
        at: Any = node
        if not hasattr(at, "lineno"):
            at = self.tree
        return Span(self._offset(at.lineno, at.col_offset), self._offset(at.end_lineno, at.end_col_offset))

    def _offset(self, line: int, column: int) -> int:
        text = self.lines[line - 1]
        # The tree counts columns in bytes of UTF-8.
        characters = column if text.isascii() else len(text.encode()[:column].decode(errors="ignore"))
        return self.starts[line - 1] + characters

    def segment(self, node: ast.AST) -> str:
        """The text of a node, on one line."""
        span = self.span(node)
        return " ".join(self.text[span.start : span.stop].split())

    def error(self, node: ast.AST, message: str, fix: str) -> KernelError:
        """The error for what stands at a node."""
        return self._error(self.span(node), message, fix)

    def _error(self, span: Span, message: str, fix: str) -> KernelError:
        shown = self.map()
        line, column = shown.line_and_column(span.start)
        rendered = render(shown, span, "error", "kernel", message, fix)
        return KernelError(message, fix, line=line, column=column, rendered=rendered)

    def map(self) -> SourceMap:
        """A source map of the file, in which nothing is placed yet."""
        return SourceMap(self.name, self.text, array("i"), array("i"), array("i"), array("i"))
