"""The rewriting step of the simplify kernel: an interpreter of the rule table's bytecode.

For an operation with resolved operands it evaluates the operation if they are literals, tries the rules in order, and
derives the known bits of the result. The statements here are text, inserted into the kernel by ``kernels``.
"""

from __future__ import annotations

from typing import Final

from vyre.optimizer.arena import NONE, OPERATION_CODES, TYPE_CODES, Kind
from vyre.optimizer.bytecode import (
    ALWAYS,
    BOOL,
    CONSTANT_WORDS,
    ENTRY,
    FIRST_OPERATION,
    HEADER,
    LAST_TEST,
    LITERAL_ROW,
    ROW,
    Code,
    RuleTable,
)
from vyre.optimizer.evaluate import LOG_WIDTHS, type_mask
from vyre.optimizer.facts import KNOWN_TYPES
from vyre.optimizer.layout import REGISTERS
from vyre.optimizer.rules import RULES
from vyre.optimizer.switches import PASSES
from vyre.semantics.types import DType

# How often one row is rewritten in a sweep.
MOST_STEPS: Final = 6
_LITERAL, _OPERATION = Kind.LITERAL.value, Kind.OPERATION.value


def resolved(row: str) -> str:
    """An expression: the representative of a row of an earlier level."""
    return f"select({row} == {NONE}, {NONE}, canon[{row}])"


def same_value(a: str, b: str) -> str:
    """An expression: whether two rows are one value, the same row or equal literals."""
    literal = f"((head[{a}] & 255) == {_LITERAL})"
    equal = f"(head[{a}] == head[{b}]) & (a0[{a}] == a0[{b}]) & (a1[{a}] == a1[{b}])"
    return f"(({a} == {b}) | ({literal} & {equal}))"


def _width(head: str) -> str:
    """An expression: the number of bits of the type of a row, u64."""
    return f"1u64 << ({LOG_WIDTHS}u64 >> u64(({head} >> 8 & 255) * 4) & 15u64)"


def set_literal_bits(row: str, head: str, low: str, high: str) -> str:
    """Statements that set the known bits of a literal, unless it is a float.

    All words are set, since the row may have held a literal of another type.
    """
    return f"""
          if ({type_mask(KNOWN_TYPES)} >> ({head} >> 8 & 255) & 1) == 1 {{
            let width_{row} = {_width(head)}
            let known_low = select(width_{row} < 32u64, u32((1u64 << width_{row}) - 1u64), {NONE})
            let known_high = select(width_{row} == 64u64, {NONE}, 0)
            known0[{row}] = {low} ^ known_low
            known1[{row}] = {low}
            known2[{row}] = {high} ^ known_high
            known3[{row}] = {high}
          }}"""


def _operand_byte(head: str) -> str:
    """An expression: what an operand is, as the byte that headers of forms compare."""
    operation = f"select(({head} & 255) == {_OPERATION}, ({head} >> 16) + {FIRST_OPERATION}, 0)"
    return f"select(({head} & 255) == {_LITERAL}, 1, {operation})"


def _follow_path(name: str) -> str:
    """Statements that follow a path to its row and read the row's type."""
    return f"""
            let {name}_base = {name}_path >> 2
            let {name} = select({name}_base == 0, a, select({name}_base == 1, b, select({name}_base == 2, c, row)))
            if ({name}_path < {ROW}) & (({name}_path & 3) != 0) {{ {name} = records[{name} * 16 + ({name}_path & 3)] }}
            let {name}_head = word
            if {name}_path < {ROW} {{ {name}_head = head[{name}] }}
            let {name}_type = select({name}_path == {BOOL}, {TYPE_CODES[DType.BOOL]}, {name}_head >> 8 & 255)"""


def _literal_bits(row: str) -> str:
    """An expression: the bits of a literal, u64."""
    return f"(u64(a0[{row}]) | u64(a1[{row}]) << 32u64)"


def _known_bits(row: str, bit: int) -> str:
    """An expression: the mask of the bits of a row that are known to be ``bit``, u64."""
    return f"(u64(known{bit}[{row}]) | u64(known{bit + 2}[{row}]) << 32u64)"


def _new_operand(byte: str) -> str:
    """An expression: the row of an operand of the new operation, by its path."""
    place = f"({byte} >> 2)"
    base = f"select({place} == 0, a, select({place} == 1, b, c))"
    return f"select({byte} >= {ROW}, {NONE}, select(({byte} & 3) == 0, {base}, records[{base} * 16 + ({byte} & 3)]))"


def rewriting(table: RuleTable) -> str:
    """Statements that rewrite the operation ``word`` of ``a``, ``b`` and ``c``.

    They change these, or set ``forwarded`` and ``target`` if another row replaces it, and set the row's known bits.
    """
    fold, bits_on = (f"((params[0] & {PASSES[name]}) != 0)" for name in ("fold", "bits"))
    count = len(RULES)
    return f"""
          let groups = params[0] | {1 << ALWAYS}
          let first_register = invocation * {REGISTERS}
          let steps = 0
          let restart = true
          let running = true
          let searching = false
          let operand_bytes = 0
          let form = 0
          let pc = 0
          let outcome = 0
          let bits = 0u64
          while running {{
            if restart {{
              restart = false
              searching = true
              steps = steps + 1
              let a_head = head[a]
              let b_head = 0
              let c_head = 0
              if b != {NONE} {{ b_head = head[b] }}
              if c != {NONE} {{ c_head = head[c] }}
              operand_bytes = {_operand_byte("a_head")} | {_operand_byte("b_head")} << 8
              operand_bytes = operand_bytes | {_operand_byte("c_head")} << 16
              let entry = (word >> 16) * {ENTRY}
              let are_literals = ((a_head & 255) == {_LITERAL}) & ((b_head == 0) | ((b_head & 255) == {_LITERAL}))
              are_literals = are_literals & ((c_head == 0) | ((c_head & 255) == {_LITERAL}))
              form = rules[entry]
              if steps > {MOST_STEPS} {{
                form = rules[entry + 1]
              }} else if are_literals & {fold} {{
                let folding = rules[entry + 2]
                form = select(folding == 0, form, folding)
              }}
            }}
            if searching {{
              searching = false
              let mismatch = true
              while mismatch {{
                let expected = rules[form]
                mismatch = ((operand_bytes ^ expected) & rules[form + 1]) != 0
                mismatch = mismatch | ((groups >> (expected >> 24) & 1) == 0)
                if mismatch {{ form = rules[form + 2] }}
              }}
              pc = form + {HEADER}
            }}
            let code = rules[pc]
            let argument = rules[pc + 1]
            pc = pc + 2
            let opcode = code & 255
            let p_path = code >> 8 & 255
            let q_path = code >> 16 & 255
            {_follow_path("p")}
            {_follow_path("q")}
            if opcode <= {LAST_TEST.value} {{
              let holds = true
              if opcode < {Code.TYPE.value} {{
                if opcode == {Code.SAME.value} {{
                  holds = {same_value("p", "q")}
                }} else if opcode == {Code.EQUALS.value} {{
                  let place = {table.constants} + argument * {CONSTANT_WORDS} + p_type * 2
                  holds = (a0[p] == rules[place]) & (a1[p] == rules[place + 1])
                }} else {{
                  holds = ((p_head & 255) == {_LITERAL}) == (opcode == {Code.LITERAL.value})
                }}
              }} else if opcode == {Code.TYPE.value} {{
                holds = (argument >> p_type & 1) == 1
              }} else if opcode == {Code.SAME_TYPE.value} {{
                holds = p_type == q_type
              }} else if opcode == {Code.PAIR.value} {{
                holds = (rules[{table.relations} + argument * 16 + p_type] >> q_type & 1) == 1
              }} else {{
                holds = registers[first_register + argument] != 0u64
              }}
              if !holds {{
                form = rules[form + 2]
                searching = true
              }}
            }} else if (opcode <= {Code.APPLY.value}) | (opcode == {Code.FOLD.value}) {{
              let value = 0u64
              let into = code >> 24
              if opcode == {Code.BITS.value} {{
                if q_path == 0 {{
                  value = {_literal_bits("p")}
                }} else if q_path == 1 {{
                  value = {_known_bits("p", 0)}
                }} else {{
                  value = {_known_bits("p", 1)}
                }}
              }} else if opcode == {Code.CONSTANT.value} {{
                let place = {table.constants} + argument * {CONSTANT_WORDS} + p_type * 2
                value = u64(rules[place]) | u64(rules[place + 1]) << 32u64
              }} else {{
                let operation = code >> 24
                let source = p_type
                let result = q_type
                let x = 0u64
                let y = 0u64
                let z = 0u64
                if opcode == {Code.FOLD.value} {{
                  operation = word >> 16
                  source = head[a] >> 8 & 255
                  result = word >> 8 & 255
                  x = {_literal_bits("a")}
                  if b != {NONE} {{ y = {_literal_bits("b")} }}
                  if c != {NONE} {{ z = {_literal_bits("c")} }}
                }} else {{
                  x = registers[first_register + (argument & 255)]
                  y = registers[first_register + (argument >> 8 & 255)]
                  into = argument >> 16
                }}
                region "evaluate" {{ }}
              }}
              if opcode == {Code.FOLD.value} {{
                outcome = {Code.BECOME_LITERAL.value}
                bits = value
                running = false
              }} else {{
                registers[first_register + into] = value
              }}
            }} else {{
              let counter = rules[form + 3]
              if opcode == {Code.FORWARD.value} {{
                outcome = opcode
                target = p
                running = false
              }} else if opcode == {Code.BECOME_LITERAL.value} {{
                outcome = opcode
                bits = registers[first_register + argument]
                running = false
              }} else if opcode == {Code.BECOME_OPERATION.value} {{
                let first = argument & 255
                let second = argument >> 8 & 255
                let third = argument >> 16
                let new_a = {_new_operand("first")}
                let new_b = {_new_operand("second")}
                let new_c = {_new_operand("third")}
                if (first == {LITERAL_ROW}) | (second == {LITERAL_ROW}) {{
                  let other = select(first == {LITERAL_ROW}, new_b, new_a)
                  let literal_head = (head[other] & 0xff00) | {_LITERAL}
                  let literal_bits = registers[first_register + (code >> 16 & 255)]
                  let literal_low = u32(literal_bits)
                  let literal_high = u32(literal_bits >> 32u64)
                  head[literal_row] = literal_head
                  a0[literal_row] = literal_low
                  a1[literal_row] = literal_high
                  {set_literal_bits("literal_row", "literal_head", "literal_low", "literal_high")}
                  if first == {LITERAL_ROW} {{ new_a = literal_row }} else {{ new_b = literal_row }}
                }}
                word = (word & 0xffff) | code >> 24 << 16
                a = new_a
                b = new_b
                c = new_c
                restart = true
              }} else if opcode == {Code.LOAD_KNOWN.value} {{
                counter = {NONE}
                let x0 = {_known_bits("p", 0)}
                let x1 = {_known_bits("p", 1)}
                let y0 = 0u64
                let y1 = 0u64
                if q != {NONE} {{
                  y0 = {_known_bits("q", 0)}
                  y1 = {_known_bits("q", 1)}
                }}
                registers[first_register] = x0
                registers[first_register + 1] = x1
                registers[first_register + 2] = y0
                registers[first_register + 3] = y1
                running = {bits_on} & (((x0 | x1 | y0 | y1) != 0u64) | (code >> 24 != 0))
              }} else {{
                counter = {NONE}
                running = false
                if opcode == {Code.SET_KNOWN.value} {{
                  let zeros = registers[first_register + (argument & 255)]
                  let ones = registers[first_register + (argument >> 8 & 255)]
                  let first = argument >> 16 & 255
                  let second = argument >> 24
                  let equal_operand = 0
                  if second != 255 {{ equal_operand = select(registers[first_register + second] != 0u64, 2, 0) }}
                  if first != 255 {{
                    equal_operand = select(registers[first_register + first] != 0u64, 1, equal_operand)
                  }}
                  if (zeros | ones) != 0u64 {{
                    known0[row] = u32(zeros)
                    known1[row] = u32(ones)
                    known2[row] = u32(zeros >> 32u64)
                    known3[row] = u32(ones >> 32u64)
                  }}
                  let width = {_width("word")}
                  if ((zeros | ones) == (0xffffffffffffffffu64 >> 64u64 - width)) & {fold} {{
                    outcome = {Code.BECOME_LITERAL.value}
                    bits = ones
                    counter = {count}
                  }} else if equal_operand != 0 {{
                    outcome = {Code.FORWARD.value}
                    let is_select = (word >> 16) == {OPERATION_CODES["select"]}
                    target = select(equal_operand == 1, select(is_select, b, a), select(is_select, c, b))
                    counter = {count + 1}
                  }}
                }}
              }}
              if counter != {NONE} {{ let unused = atomic_add(fired, counter + 1, 1) }}
            }}
          }}
          let forwarded = outcome == {Code.FORWARD.value}
          if outcome == {Code.BECOME_LITERAL.value} {{
            word = (word & 0xff00) | {_LITERAL}
            a = u32(bits)
            b = u32(bits >> 32u64)
            c = {NONE}
            {set_literal_bits("row", "word", "a", "b")}
          }}"""
