"""How are statements read without Python? As bytes that msgspec wrote, by a program of one invocation.

The bytes are an array of nodes, each an array of its tag and its fields. First come nodes that are known, with their
rows in ``given``: operators, buffers, variables, literals, leaves. Then come declarations of values and stores, which
become rows as the walk in Python would write them. A word is looked up in a table by all its bytes, a literal by its
bits and its type. What is not known here ends the reading before its statement, and so does a table that is full.

Many nodes come in several such arrays, one after another: the program goes on where it was, with its buffers as it
left them and ``params`` for the nodes that have come by then.
"""

from __future__ import annotations

from enum import IntFlag
from functools import cache
from typing import Any, Final

import numpy as np

from vyre.ir import nodes as n
from vyre.ir.binding import Array
from vyre.ir.program import Program
from vyre.optimizer.arena import NONE, OPERATION_CODES, OPERATIONS, TYPES, Kind, Leaf, head, operation_head
from vyre.semantics.types import DType

# A word of the table: four words of key, where its letters behind the eighth are, its row, head and level. What has no
# row yet has its a0 where others have their level. A frame of the stack: form, what it is about, how many operands it
# has, two of them, the level of the deepest, and the type that the operation goes by (of a load, its head).
RECORD: Final = 8
DEEPEST: Final = 1_024
USED: Final = 1 << 31
# What was read so far, from which the next stream is gone on with; of the nodes, also those that are known.
RESULT: Final = ("nodes", "stores", "rows", "fresh", "thirds", "why", "words", "letters")
READ_ALL, UNREAD, FULL = 0, 1, 2


# Nodes without operands, which stand for a leaf each; but for lengths, which are by buffer.
LEAVES: Final[dict[type[n.Expr], Leaf]] = {
    n.InvocationId: Leaf.INVOCATION_ID,
    n.WorkgroupId: Leaf.WORKGROUP_ID,
    n.LocalId: Leaf.LOCAL_ID,
    n.NumWorkgroups: Leaf.NUM_WORKGROUPS,
    n.SubgroupLocalId: Leaf.SUBGROUP_LANE,
    n.SubgroupSize: Leaf.SUBGROUP_SIZE,
}


class Form(IntFlag):
    """What follows a node's tag, and what the node is: see ``_FORMS`` for what is in the higher bits."""

    WORD = 1
    NUMBER = 2
    LABEL = 4
    IS_NEW = 8
    TYPED_BY_SECOND = 64


def tag_of(cls: type[n.Node]) -> int:
    """What msgspec writes before the fields of a node."""
    tag: Any = cls.__struct_config__.tag
    assert isinstance(tag, int)
    return tag


def _form(cls: type[n.Node], flags: int, arity: int = 0, like: type[n.Node] | None = None, code: int = 0) -> int:
    return flags | arity << 4 | tag_of(like or cls) << 8 | code << 16 | tag_of(cls) << 24


_FORMS: Final[dict[type[n.Node], int]] = {
    n.Let: _form(n.Let, Form.WORD | Form.IS_NEW, 1, n.Var),
    n.Store: _form(n.Store, Form.WORD, 2, n.Load),
    n.Var: _form(n.Var, Form.WORD),
    n.Lit: _form(n.Lit, Form.NUMBER | Form.LABEL | Form.IS_NEW),
    n.BinOp: _form(n.BinOp, Form.WORD, 2),
    n.UnOp: _form(n.UnOp, Form.WORD, 1),
    n.Load: _form(n.Load, Form.WORD, 1),
    n.Select: _form(n.Select, Form.TYPED_BY_SECOND, 3, code=OPERATION_CODES["select"]),
    n.Fma: _form(n.Fma, 0, 3, code=OPERATION_CODES["fma"]),
    n.Cast: _form(n.Cast, Form.LABEL, 1, code=OPERATION_CODES["cast"]),
    n.Bitcast: _form(n.Bitcast, Form.LABEL, 1, code=OPERATION_CODES["bitcast"]),
    n.BufLen: _form(n.BufLen, Form.WORD),
    **{
        cls: _form(cls, (Form.NUMBER if cls.__struct_fields__ else 0) | Form.IS_NEW, code=leaf)
        for cls, leaf in LEAVES.items()
    },
}


@cache
def forms() -> Array:
    """What is read, by tag; zero for everything else."""
    made = np.zeros(256, np.uint32)
    for cls, form in _FORMS.items():
        made[tag_of(cls)] = form
    return made


@cache
def operations() -> Array:
    """The heads of operations, by their codes and the types they go by."""
    made = np.zeros((len(OPERATIONS), 16), np.uint32)
    for code, name in enumerate(OPERATIONS):
        made[code, : len(TYPES)] = [operation_head(name, dtype) for dtype in TYPES]
    return made.ravel()


def _four_bytes(at: str) -> str:
    word, bit = f"(({at}) >> 2)", f"((({at}) & 3) << 3)"
    return f"(stream[{word}] >> {bit} | stream[{word} + 1] << 1 << 31 - {bit})"


def _turned(word: str) -> str:
    """Four bytes the other way round."""
    return f"(rotl({word}, 8) & 0xff00ff | rotr({word}, 8) & 0xff00ff00)"


def _type_code(label: str) -> str:
    """The code of the type with a label, which has at most four bytes."""
    code = str(len(TYPES))
    for number, dtype in enumerate(TYPES):
        code = f"select({label} == {int.from_bytes(dtype.label.encode(), 'little')}, {number}, {code})"
    return code


def _is(cls: type[n.Node], form: str = "form") -> str:
    return f"({form} >> 24 == {tag_of(cls)})"


def _add_third(a2: str) -> str:
    """Statements that give the row that comes next an a2, which few rows have."""
    return f"""
            thirds[2 * third_count] = rows
            thirds[2 * third_count + 1] = {a2}
            third_count = third_count + 1"""


def _add_row(word: str, a0: str, a1: str, level: str) -> str:
    return f"""
            head[rows] = {word}
            a0[rows] = {a0}
            a1[rows] = {a1}
            level[rows] = {level}
            rows = rows + 1"""


# Reads what is behind a tag: a number into low and high, the label of a type as its code into more, or a word, of which
# low and high are the first bytes and more is a hash of those behind.
_FIELDS: Final = f"""
      let low = 0
      let high = 0
      let more = 0
      let length = 0
      if (form & {Form.NUMBER.value}) != 0 {{
        let first = node >> 16 & 255
        at = at + 1
        low = first
        if first >= 128 {{
          let next = {_four_bytes("at")}
          let turned = {_turned("next")}
          if first == 0xcc {{
            low = turned >> 24
            at = at + 1
          }} else if first == 0xcd {{
            low = turned >> 16
            at = at + 2
          }} else if first == 0xce {{
            low = turned
            at = at + 4
          }} else if first == 0xcf {{
            high = turned
            let last = {_four_bytes("at + 4")}
            low = {_turned("last")}
            at = at + 8
          }} else {{
            why = {UNREAD}
          }}
        }}
      }}
      if (form & {Form.LABEL.value}) != 0 {{
        let first = {_four_bytes("at")}
        let size = first & 31
        let label = {_four_bytes("at + 1")}
        if size < 4 {{ label = label & (1 << (size << 3)) - 1 }}
        more = {_type_code("label")}
        at = at + 1 + size
      }}
      if (form & {Form.WORD.value}) != 0 {{
        let first = node >> 16 & 255
        at = at + 1
        length = first & 31
        if first >> 5 != 5 {{
          let next = {_four_bytes("at")}
          if first == 0xd9 {{
            length = next & 255
            at = at + 1
          }} else if first == 0xda {{
            length = {_turned("next")} >> 16
            at = at + 2
          }} else {{
            why = {UNREAD}
          }}
        }}
        low = {_four_bytes("at")}
        if length < 4 {{
          low = low & (1 << (length << 3)) - 1
        }} else if length > 4 {{
          high = {_four_bytes("at + 4")}
          if length < 8 {{ high = high & (1 << ((length & 3) << 3)) - 1 }}
        }}
        let behind = 8
        while behind < length {{
          let part = {_four_bytes("at + behind")}
          if length - behind < 4 {{ part = part & (1 << ((length & 3) << 3)) - 1 }}
          more = (rotl(more, 5) ^ part) * 0x9e3779b1
          behind = behind + 4
        }}
      }}"""

# Finds the place of what was read in the table, or makes it one.
_PLACE: Final = f"""
        let key = {USED} | (form & 0xff00) << 8 | length
        let hash = (low * 0x85ebca6b ^ rotl(high * 0xc2b2ae35, 13) ^ rotl(more, 7)) * 0x9e3779b1 + key * 0x27d4eb2f
        hash = (hash ^ hash >> 15) * 0x2c1b3c6d
        place = ((hash ^ hash >> 13) & mask) * {RECORD}
        let seeking = true
        while seeking {{
          let entry = words[place]
          if entry == 0 {{
            seeking = false
            if ((form & {Form.IS_NEW.value}) == 0) & (number >= known) {{
              why = {UNREAD}
            }} else if (used == most_words) | (letter_count + (length >> 2) > len(letters)) {{
              why = {FULL}
            }} else {{
              used = used + 1
              words[place] = key
              words[place + 1] = low
              words[place + 2] = high
              words[place + 3] = more
              words[place + 4] = letter_count
              words[place + 5] = {NONE}
              words[place + 6] = {head(Kind.LEAF, DType.U32)} | (form & 0xff0000)
              words[place + 7] = low
              if {_is(n.Lit)} {{ words[place + 6] = {head(Kind.LITERAL)} | more << 8 }}
              let behind = 8
              while behind < length {{
                let part = {_four_bytes("at + behind")}
                if length - behind < 4 {{ part = part & (1 << ((length & 3) << 3)) - 1 }}
                letters[letter_count] = part
                letter_count = letter_count + 1
                behind = behind + 4
              }}
            }}
          }} else {{
            let differs = (words[place + 1] != low) | (words[place + 2] != high) | (words[place + 3] != more)
            seeking = (entry != key) | differs
            let behind = 8
            while !seeking & (behind < length) {{
              let part = {_four_bytes("at + behind")}
              if length - behind < 4 {{ part = part & (1 << ((length & 3) << 3)) - 1 }}
              seeking = part != letters[words[place + 4] + (behind >> 2) - 2]
              behind = behind + 4
            }}
            if seeking {{ place = ((place / {RECORD}) + 1 & mask) * {RECORD} }}
          }}
        }}
        at = at + length"""

# Hands a value to the node around it, and that to the next, if it has all its operands now.
_GIVE: Final = f"""
      while is_value {{
        let frame = (depth - 1) * {RECORD}
        let around = stack[frame]
        let about = stack[frame + 1]
        let taken = stack[frame + 2]
        let arity = around >> 4 & 3
        let deepest = max(deep, stack[frame + 5])
        if (taken == (around >> 6 & 1)) & ((around & {Form.LABEL.value}) == 0) {{ stack[frame + 6] = word >> 8 & 15 }}
        if taken + 1 < arity {{
          stack[frame + 2] = taken + 1
          stack[frame + 3 + taken] = row
          stack[frame + 5] = deepest
          is_value = false
        }} else {{
          depth = depth - 1
          let one = select(arity == 1, row, stack[frame + 3])
          let two = select(arity == 1, {NONE}, select(arity == 2, row, stack[frame + 4]))
          if {_is(n.Let, "around")} {{
            words[about + 5] = row
            words[about + 6] = word
            words[about + 7] = deep
            values[number - known - stores] = row
            is_value = false
          }} else if {_is(n.Store, "around")} {{
            {_add_row(str(Kind.EFFECT.value), "one", "two", str(NONE))}
            ends[2 * stores] = number - known
            ends[2 * stores + 1] = memory[2 * about]
            memory[2 * about] = {NONE}
            memory[2 * about + 1] = params[5] + stores
            stores = stores + 1
            is_value = false
          }} else if {_is(n.Load, "around")} {{
            let version = memory[2 * about]
            if version == {NONE} {{
              version = params[4] + fresh_count
              memory[2 * about] = version
              fresh[2 * fresh_count] = about
              fresh[2 * fresh_count + 1] = memory[2 * about + 1]
              fresh_count = fresh_count + 1
            }}
            word = stack[frame + 7]
            deep = deepest + 1
            {_add_third("about")}
            row = first_row + rows
            {_add_row("word", "one", "version", "deep")}
          }} else if !{_is(n.Cast, "around")} | ((word >> 8 & 15) != stack[frame + 6]) {{
            word = operations[about << 4 | stack[frame + 6]]
            deep = deepest + 1
            if arity == 3 {{ {_add_third("row")} }}
            row = first_row + rows
            {_add_row("word", "one", "two", "deep")}
          }}
          if depth == 0 {{
            number = number + 1
            kept_rows = rows
            kept_fresh = fresh_count
            kept_thirds = third_count
          }}
        }}
      }}"""

_READ: Final = f"""
program read(workgroup 1) {{
  buffer 0 stream: u32[] read
  buffer 1 params: u32[] read
  buffer 2 given: u32[] read
  buffer 3 forms: u32[] read
  buffer 4 operations: u32[] read
  buffer 5 words: u32[] readwrite
  buffer 6 stack: u32[] readwrite
  buffer 7 memory: u32[] readwrite
  buffer 8 fresh: u32[] readwrite
  buffer 9 values: u32[] readwrite
  buffer 10 ends: u32[] readwrite
  buffer 11 head: u32[] readwrite
  buffer 12 a0: u32[] readwrite
  buffer 13 a1: u32[] readwrite
  buffer 14 thirds: u32[] readwrite
  buffer 15 level: u32[] readwrite
  buffer 16 letters: u32[] readwrite
  buffer 17 result: u32[{len(RESULT)}] readwrite

  if gid.x == 0 {{
    let at = params[0]
    let known = params[1]
    let count = params[2]
    let first_row = params[3]
    let mask = len(words) / {RECORD} - 1
    let most_words = mask - mask / 4
    let number = result[0]
    let stores = result[1]
    let rows = result[2]
    let kept_rows = rows
    let fresh_count = result[3]
    let kept_fresh = fresh_count
    let third_count = result[4]
    let kept_thirds = third_count
    let why = result[5]
    let used = result[6]
    let letter_count = result[7]
    let depth = 0
    while (number < count) & (why == {READ_ALL}) {{
      let node = {_four_bytes("at")}
      let form = forms[node >> 8 & 255]
      if form == 0 {{ why = {UNREAD} }}
      let place = 0
      let is_value = false
      at = at + 2
      {_FIELDS}
      if ((form & {Form.WORD.value}) != 0) | ((form & 48) == 0) {{
        {_PLACE}
      }}
      let row = words[place + 5]
      let word = words[place + 6]
      let deep = words[place + 7]
      if why == {READ_ALL} {{
        if number < known {{
          words[place + 5] = given[3 * number]
          words[place + 6] = given[3 * number + 1]
          words[place + 7] = given[3 * number + 2]
          number = number + 1
        }} else if (form & 48) == 0 {{
          is_value = true
          if row == {NONE} {{
            if {_is(n.Var)} {{
              why = {UNREAD}
              is_value = false
            }} else {{
              row = first_row + rows
              let second = select({_is(n.Lit)}, high, {NONE})
              {_add_row("word", "deep", "second", "0")}
              deep = 0
              words[place + 5] = row
              words[place + 7] = deep
            }}
          }}
        }} else if depth == {DEEPEST} {{
          why = {UNREAD}
        }} else {{
          let frame = depth * {RECORD}
          stack[frame] = form
          stack[frame + 1] = select({_is(n.Let)}, place, select((form & {Form.WORD.value}) != 0, row, form >> 16 & 255))
          stack[frame + 2] = 0
          stack[frame + 5] = 0
          stack[frame + 6] = more
          stack[frame + 7] = word
          depth = depth + 1
        }}
      }}
      {_GIVE}
    }}
    result[0] = number
    result[1] = stores
    result[2] = kept_rows
    result[3] = kept_fresh
    result[4] = kept_thirds
    result[5] = why
    result[6] = used
    result[7] = letter_count
  }}
}}
"""


@cache
def reader() -> Program:
    """The program, made once."""
    from vyre.ir.parser import parse

    return parse(_READ)
