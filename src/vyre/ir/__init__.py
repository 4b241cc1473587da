"""What is a program? Types, expressions, statements, buffers; build, walk, print, parse, encode.

A ``Program`` is immutable data: buffers, a workgroup size, and an entry that every invocation of the grid runs.
``vyre.ir.build`` writes programs in Python, ``parse`` reads them from text, ``decode`` from bytes.
"""

from __future__ import annotations

from vyre.ir.buffers import Access, BufferDecl, Role
from vyre.ir.build import *  # noqa: F403
from vyre.ir.extensions import CompositeOp, inline_calls, register_extension, register_op
from vyre.ir.launch import Launch, decide_launch
from vyre.ir.nodes import *  # noqa: F403
from vyre.ir.parser import parse, parse_expression
from vyre.ir.printer import print_expression, print_program, print_statements
from vyre.ir.program import Program, Stats
from vyre.ir.wire import decode, encode
from vyre.semantics.types import DType

__all__ = [
    "Access", "BufferDecl", "CompositeOp", "DType", "Launch", "Program", "Role", "Stats", "decide_launch", "decode",
    "encode", "inline_calls", "parse", "parse_expression", "print_expression", "print_program", "print_statements",
    "register_extension", "register_op",
]  # fmt: skip
