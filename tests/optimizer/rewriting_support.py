"""Runs the rewriting step of the simplify kernel, and its definition in Python, on the rows of a test."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import msgspec
import numpy as np
from findings_oracle import Analysis
from rule_semantics import Columns

from vyre.driver.backend import Backend
from vyre.driver.config import DispatchConfig
from vyre.ir import nodes as n
from vyre.ir import parse, walk
from vyre.ir.binding import Array
from vyre.ir.program import Program
from vyre.optimizer.arena import NONE, Arena, Kind
from vyre.optimizer.bytecode import rule_names, rule_table
from vyre.optimizer.evaluate import evaluate
from vyre.optimizer.layout import RECORDS, REGISTERS, WORDS, in_records
from vyre.optimizer.rewrite import rewriting
from vyre.optimizer.rules import GROUPS
from vyre.optimizer.switches import NOTHING, PASSES, Optimization

UNOPTIMIZED = DispatchConfig(optimize=NOTHING)
_FOUND = ("word", "a", "b", "c", "forwarded", "target")
ALL_RULES = sum(1 << place for place in range(len(GROUPS)))
ALL_BITS = ALL_RULES | sum(PASSES.values())


class Rewritten(msgspec.Struct, frozen=True):
    """A rewritten row: the ``target`` that replaces it, or its words; the literal it created; its known bits."""

    target: int | None
    words: tuple[int, int, int, int]
    literal: tuple[int, int, int]
    known: tuple[int, int]


@cache
def program() -> Program:
    """The rewriting step as a program: each invocation rewrites one row."""
    stores = "\n".join(f"found_{name}[row] = {'u32(forwarded)' if name == 'forwarded' else name}" for name in _FOUND)
    outputs = "\n".join(f"buffer {5 + place} found_{name}: u32[] output" for place, name in enumerate(_FOUND))
    text = f"""program rewrite(workgroup 64) {{
      buffer 0 records: u32[] readwrite
      buffer 1 params: u32[] read
      buffer 2 rules: u32[] read
      buffer 3 registers: u64[] readwrite
      buffer 4 fired: u32[] readwrite
      {outputs}
      let invocation = gid.x
      let row = gid.x
      let rows = params[1]
      if (row >= params[2]) & (row < rows) {{
        let word = head[row]
        if (word & 255) == {Kind.OPERATION.value} {{
          let a = a0[row]
          let b = a1[row]
          let c = a2[row]
          let literal_row = rows + row
          let target = row
          {rewriting(rule_table())}
          {stores}
        }}
      }}
    }}"""

    def fill(statement: n.Stmt) -> tuple[n.Stmt, ...]:
        return evaluate() if isinstance(statement, n.Region) else (statement,)

    made = parse(text)
    return in_records(made.with_entry(walk.rewrite(made.entry, on_statement=fill)))


def rewrite_rows(
    columns: Columns, rows: Sequence[int], bits: int, on: Backend
) -> tuple[list[Rewritten], dict[str, int]]:
    """Rewrite copies of rows, so that the originals stay operands; return the results and the rules that fired."""
    size = len(columns.head)
    count = size + len(rows)
    fields = RECORDS["records"]
    records = np.zeros((2 * count, WORDS["records"]), np.uint32)
    records[:, [fields.index(name) for name in ("head", "a0", "a1", "a2")]] = NONE
    for name, column in (("head", columns.head), ("a0", columns.a0), ("a1", columns.a1), ("a2", columns.a2)):
        records[:count, fields.index(name)] = [*column, *(column[row] for row in rows)]
    for place, (zeros, ones) in enumerate(columns.known or ()):
        for part, value in enumerate((zeros, ones, zeros >> 32, ones >> 32)):
            records[place, fields.index(f"known{part}")] = value & NONE
    return _run(records, size, count, bits, on)


def _run(records: Array, size: int, count: int, bits: int, on: Backend) -> tuple[list[Rewritten], dict[str, int]]:
    fields = RECORDS["records"]
    given = {
        "records": records.reshape(-1),
        "params": np.array([bits, count, size], np.uint32),
        "rules": rule_table().words,
        "registers": np.zeros(REGISTERS * (-(-count // 64) * 64), np.uint64),
        "fired": np.zeros(1 + len(rule_names()), np.uint32),
    }
    config = UNOPTIMIZED.with_changes(dispatch_elements=count)
    outputs = on.dispatch(program(), given, config)
    names = [decl.name for decl in program().output_buffers()]
    got = dict(zip(names, (np.frombuffer(view, np.uint32) for view in outputs), strict=True))
    after = got["records"].reshape(2 * count, WORDS["records"])
    result = []
    for row in range(size, count):
        literal = [int(after[count + row, fields.index(name)]) for name in ("head", "a0", "a1")]
        masks = [int(after[row, fields.index(f"known{part}")]) for part in range(4)]
        result.append(
            Rewritten(
                int(got["found_target"][row]) if got["found_forwarded"][row] else None,
                tuple(int(got[f"found_{name}"][row]) for name in ("word", "a", "b", "c")),  # type: ignore[arg-type]
                (literal[0], literal[1], literal[2]),
                (masks[0] | masks[2] << 32, masks[1] | masks[3] << 32),
            )
        )
    counts = dict(zip(rule_names(), got["fired"][1:].tolist(), strict=True))
    return result, {name: times for name, times in counts.items() if times}


def expected_rows(columns: Columns, rows: Sequence[int], off: frozenset[str]) -> tuple[list[Rewritten], dict[str, int]]:
    """The same by the definition in Python."""
    size = len(columns.head)
    count = size + len(rows)
    given = {
        name: np.array([*column, *(column[row] for row in rows)], np.uint32)
        for name, column in (("head", columns.head), ("a0", columns.a0), ("a1", columns.a1), ("a2", columns.a2))
    }
    given |= {name: np.zeros(count, np.uint32) for name in ("scope", "d0", "d1")}
    none = np.zeros(1, np.uint32)
    analysis = Analysis(Arena(count, given, *(none,) * 10), off)
    for row, masks in enumerate(columns.known or ()):
        analysis.known[row] = masks
    result = []
    for row in range(size, count):
        analysis.rewrite(row)
        is_forwarded = analysis.canon[row] != row
        words = analysis.head[row], analysis.a0[row], analysis.a1[row], analysis.a2[row]
        literal_row = count + row
        result.append(
            Rewritten(
                analysis.canon[row] if is_forwarded else None,
                words,
                (analysis.head[literal_row], analysis.a0[literal_row], analysis.a1[literal_row]),
                analysis.known[row],
            )
        )
    return result, analysis.fired


def differences(columns: Columns, rows: Sequence[int], off: frozenset[str], on: Backend) -> list[str]:
    """Where the kernel and the definition in Python disagree."""
    bits = Optimization(off=off).bits
    got, counts = rewrite_rows(columns, rows, bits, on)
    wanted, wanted_counts = expected_rows(columns, rows, off)
    wrong = [] if counts == wanted_counts else [f"fired {counts} instead of {wanted_counts}"]
    for row, one, other in zip(rows, got, wanted, strict=True):
        if one.target is not None and other.target is not None:
            if not columns.same(one.target, other.target):
                wrong.append(f"row {row} is row {one.target} instead of {other.target}")
        elif (one.target, one.known) != (other.target, other.known) or not _is_equal(columns, one, other):
            wrong.append(f"row {row} became {one} instead of {other}")
    return wrong


def _is_equal(columns: Columns, one: Rewritten, other: Rewritten) -> bool:
    """Whether two rewritten rows have equal words, comparing literals by value."""
    if one.words[0] != other.words[0]:
        return False
    if one.words[0] & 255 == Kind.LITERAL:
        return one.words[1:3] == other.words[1:3]
    size = len(columns.head)

    def operand(row: int, made: Rewritten) -> object:
        if row == NONE:
            return row
        if row >= size:
            return made.literal
        is_literal = columns.is_literal(row)
        return (columns.head[row], columns.a0[row], columns.a1[row]) if is_literal else row

    return all(operand(a, one) == operand(b, other) for a, b in zip(one.words[1:], other.words[1:], strict=True))
