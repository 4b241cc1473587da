"""Which programs optimise programs? Five, on the columns of an arena, each for any number of rows.

need finds the values that anything which happens may ask for; the others are left out of everything that follows.
simplify goes through the rows by level, operands first. Each row's operands are replaced by the rows that stand for
them; constants are folded and rules applied; then the row is looked up in a table by everything it is made of, and
the least row of its level that is made of the same stands for all. Loops whose cells turn out not to change are
noted, and then it is all done once more, from the rows as they were: literals that rules made are made anew.

live marks what effects need, place finds for each value the scope to compute it in, and pack puts what the host asks
for into few words. A loop in which invocations meet keeps its values, and gets no others: what crosses such a meeting
has to be carried over it, or computed again, by whoever cannot hold all invocations at once.

In these programs the grid meets between levels, so the host has no part in it; it meets where a loop's body begins,
so that what lies between two meetings is there once. Columns that are no buffer here are fields of one (``records``).
"""

from __future__ import annotations

from functools import cache
from typing import Final

import msgspec

from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.program import Program
from vyre.optimizer.arena import MOVABLE, NONE, OPERATIONS, USES_NOTHING, Arm, Kind
from vyre.optimizer.bytecode import rule_table
from vyre.optimizer.evaluate import evaluate
from vyre.optimizer.layout import ALONE, PACKED_NOWHERE, WORKGROUP, in_records
from vyre.optimizer.rewrite import note_literal, resolved, rewriting, same_value
from vyre.optimizer.switches import PASSES
from vyre.semantics.operators import OPERATORS
from vyre.semantics.types import FLOATS, DType

SLOT: Final = 1 << 31
MOST_SWEEPS: Final = 4
# The generator of the region around all of ``live``, by which dispatchers know it.
LIVE: Final = "vyre.optimizer.live"

_RECORDS: Final = """
  buffer 0 records: u32[] readwrite"""


def _own_part(number: str, limit: str, body: str) -> str:
    """Statements for each number below a limit; those of an invocation stand together, as what they are about does."""
    return f"""
    let {number}_part = ({limit} + stride - 1) / stride
    let {number} = min(me * {number}_part, {limit})
    let {number}_end = min({number} + {number}_part, {limit})
    while {number} < {number}_end {{{body}
      {number} = {number} + 1
    }}"""


def _stretch(number: str) -> str:
    """Statements that tell where a stretch of the order begins and ends, and whether one should go through it alone."""
    return f"""
      let start = stretches[{number}] & {ALONE - 1}
      let end = stretches[{number} + 1] & {ALONE - 1}
      let is_narrow = stretches[{number}] >= {ALONE}"""


# Of a stretch, only what is needed.
_LEFT: Final = "start = end - needed_count[here]"


def _swaps(word: str) -> str:
    """Whether the operands of a row may change places, by the operator table."""
    words = [0, 0, 0]
    for code, name in enumerate(OPERATIONS):
        if name in OPERATORS and OPERATORS[name].commutative:
            words[code >> 5] |= 1 << (code & 31)
    operation = f"({word} >> 16)"
    chosen = f"select({operation} < 32, {words[0]}, select({operation} < 64, {words[1]}, {words[2]}))"
    return f"((({word} & 255) == {Kind.OPERATION.value}) & (({chosen} >> ({operation} & 31) & 1) == 1))"


def _keyed(row: str) -> str:
    """Statements that make the key of a literal, to begin a search with, the same as that of equal ones."""
    bits = f"(a0[{row}] ^ rotl(a1[{row}], 7)) * 0x9e3779b1 + head[{row}]"
    return f"if (head[{row}] & 255) == {Kind.LITERAL.value} {{ {row}_key = {bits} }}"


def _intern(*, alone: bool) -> str:
    """Statements that look the row up and make the least row that is equal stand for it.

    In a level it is the least of those in a slot, known when all have been there. Who goes alone through levels
    of one row each meets rows of other levels only; and nothing need be atomic, so the processor goes on while it waits
    for the table.
    """
    if alone:
        take, claim, share = "slots[slot]", "slots[slot] = row", "canon[row] = canon[found]"
    else:
        take = f"atomic_compare_exchange(slots, slot, {NONE}, row)"
        claim = f"""let unused = atomic_min(best, slot, row)
              canon[row] = slot | {SLOT}"""
        share = f"""if level[found] == level[row] {{
                  let unused = atomic_min(best, slot, row)
                  canon[row] = slot | {SLOT}
                }} else {{
                  canon[row] = canon[found]
                }}"""
    return f"""
        let own = key[row]
        if own != 0 {{
          let slot = own >> 1 & table_mask
          let seeking = true
          while seeking {{
            let found = {take}
            if found == {NONE} {{
              seeking = false
              {claim}
            }} else {{
              let equal = key[found] == own
              if equal {{
                let made = head[row]
                let sort = made & 255
                let x = a0[row]
                let y = a1[row]
                let z = a2[row]
                let x1 = a0[found]
                let y1 = a1[found]
                let z1 = a2[found]
                equal = head[found] == made
                if sort == {Kind.LOAD.value} {{
                  equal = equal & {same_value("x", "x1")} & (y == y1) & (z == z1)
                }} else {{
                  let straight = {same_value("x", "x1")} & {same_value("y", "y1")}
                  let crossed = {_swaps("made")} & {same_value("x", "y1")} & {same_value("y", "x1")}
                  equal = equal & (straight | crossed) & {same_value("z", "z1")}
                  equal = equal & ((sort != {Kind.PHI.value}) | (scope[row] == scope[found]))
                }}
              }}
              if equal {{
                seeking = false
                {share}
              }} else {{
                slot = slot + 1 & table_mask
              }}
            }}
          }}
        }}"""


# Makes the key of a row that is to be looked up, 0 for others, while its operands are at hand; equal rows have equal
# keys, and others seldom.
_KEY: Final = f"""
        let mixed = 0
        if shares & (canon[row] == row) {{
          let made = head[row]
          let sort = made & 255
          if (sort == {Kind.OPERATION.value}) | (sort == {Kind.LOAD.value}) | (sort == {Kind.PHI.value}) {{
            let x = a0[row]
            let y = a1[row]
            let z = a2[row]
            let x_key = x * 0x85ebca6b
            let y_key = y * 0x85ebca6b
            let z_key = z * 0x85ebca6b
            {_keyed("x")}
            if sort != {Kind.LOAD.value} {{
              {_keyed("y")}
              if z != {NONE} {{ {_keyed("z")} }}
            }}
            mixed = select({_swaps("made")}, x_key + y_key, rotl(x_key, 5) + y_key)
            mixed = mixed ^ rotl(z_key, 11) ^ made * 0xc2b2ae35
            mixed = (mixed ^ mixed >> 15) * 0x27d4eb2f
            mixed = mixed ^ mixed >> 13 | 1
          }}
        }}
        key[row] = mixed"""

_CLEAR_SLOT: Final = f"""
      slots[empty] = {NONE}
      best[empty] = {NONE}"""
_CLEAR_COUNT: Final = """
      fired[tally] = 0"""

# Behind each row there is room for a literal.
_MAKE_RECORD: Final = f"""
      let is_row = k < rows
      head[k] = select(is_row, given_head[k], {NONE})
      a0[k] = select(is_row, given_a0[k], {NONE})
      a1[k] = select(is_row, given_a1[k], {NONE})
      a2[k] = select(is_row, given_a2[k], {NONE})
      canon[k] = k
      early[k] = 0
      place[k] = {NONE}
      uses[k] = 0
      known0[k] = 0
      known1[k] = 0
      known2[k] = 0
      known3[k] = 0
      live[k] = 0
      level[k] = given_level[k]"""

_LOOK_AT_LOOP: Final = f"""
      if ((given_head[looked] & 255) == {Kind.LOOP.value}) & (settled[looked] == 0) {{
        let row = looked
        let back = {resolved("a1[row]")}
        let before = {resolved("a0[row]")}
        if (back == {NONE}) | (back == row) | {same_value("back", "before")} {{
          settled[row] = 1
          again[0] = 1
        }}
      }}"""


def _need(row: str) -> str:
    return f"if {row} != {NONE} {{ let unused = atomic_store(needed, {row}, 1) }}"


# Whatever stands somewhere is needed, and so are cells, whose rows name one another in circles.
_NEED_BY_STATEMENT: Final = f"""
      if (given_head[k] & 255) >= {Kind.PHI.value} {{
        let self = k
        let x = given_a0[k]
        let y = given_a1[k]
        let z = given_a2[k]
        {_need("self")}
        {_need("x")}
        {_need("y")}
        {_need("z")}
      }}"""

_NEED: Final = f"""
program need(workgroup {WORKGROUP}) {{
  buffer 0 given_head: u32[] read
  buffer 1 given_a0: u32[] read
  buffer 2 given_a1: u32[] read
  buffer 3 given_a2: u32[] read
  buffer 4 order: u32[] read
  buffer 5 stretches: u32[] read
  buffer 6 params: u32[] read
  buffer 7 needed: u32[] readwrite
  buffer 8 needed_order: u32[] readwrite
  buffer 9 needed_count: u32[] readwrite

  let me = gid.x
  let stride = num_wg.x * {WORKGROUP}
  let rows = params[1]
  {_own_part("k", "rows", _NEED_BY_STATEMENT)}
  let here = params[3]
  while here > 0 {{
    grid_sync
    here = here - 1
    {_stretch("here")}
    let step = select(is_narrow, 1, stride)
    let at = select(is_narrow & (me != 0), end, start + me)
    while at < end {{
      let row = order[select(is_narrow, end - 1 - (at - start), at)]
      if needed[row] != 0 {{
        needed_order[end - 1 - atomic_add(needed_count, here, 1)] = row
        let kind = given_head[row] & 255
        if (kind == {Kind.OPERATION.value}) | (kind == {Kind.LOAD.value}) | (kind == {Kind.PINNED.value}) {{
          let x = given_a0[row]
          {_need("x")}
          if kind != {Kind.LOAD.value} {{
            let y = given_a1[row]
            let z = given_a2[row]
            {_need("y")}
            {_need("z")}
          }}
        }}
      }}
      at = at + step
    }}
  }}
}}
"""


def _simplify() -> str:
    return f"""
program simplify(workgroup {WORKGROUP}) {{{_RECORDS}
  buffer 1 given_head: u32[] read
  buffer 2 given_a0: u32[] read
  buffer 3 given_a1: u32[] read
  buffer 4 given_a2: u32[] read
  buffer 5 given_level: u32[] read
  buffer 6 scope: u32[] read
  buffer 7 stretches: u32[] read
  buffer 8 needed_order: u32[] read
  buffer 9 needed_count: u32[] read
  buffer 10 scope_last: u32[] read
  buffer 11 params: u32[] read
  buffer 12 table: u32[] readwrite
  buffer 13 again: u32[1] readwrite
  buffer 14 fired: u32[] readwrite
  buffer 15 settled: u32[] readwrite
  buffer 16 rules: u32[] read
  buffer 17 registers: u64[] readwrite

  let me = gid.x
  let stride = num_wg.x * {WORKGROUP}
  let rows = params[1]
  let table_mask = params[2]
  let stretch_count = params[3]
  let shares = (params[0] & {PASSES["share"]}) != 0
  let sweep = 0
  while (sweep == 0) | ((again[0] != 0) & (sweep < {MOST_SWEEPS})) {{
    grid_sync
    if me == 0 {{ again[0] = 0 }}
    {_own_part("empty", "table_mask + 1", _CLEAR_SLOT)}
    {_own_part("tally", "len(fired)", _CLEAR_COUNT)}
    {_own_part("k", "2 * rows", _MAKE_RECORD)}
    let here = 0
    while here < stretch_count {{
      grid_sync
      {_stretch("here")}
      {_LEFT}
      here = here + 1
      let step = select(is_narrow, 1, stride)
      let at = select(is_narrow & (me != 0), end, start + me)
      while at < end {{
        let row = needed_order[at]
        let word = head[row]
        let kind = word & 255
        if kind == {Kind.OPERATION.value} {{
          let old_a = a0[row]
          let old_b = a1[row]
          let old_c = a2[row]
          let a = {resolved("old_a")}
          let b = {resolved("old_b")}
          let c = {NONE}
          if old_c != {NONE} {{ c = {resolved("old_c")} }}
          let spare = rows + row
          let target = row
          {rewriting(rule_table())}
          if forwarded {{
            canon[row] = target
          }} else {{
            let is_operation = (word & 255) == {Kind.OPERATION.value}
            let is_moved = (a != old_a) | (b != old_b) | (c != old_c)
            if is_moved | (steps > 1) | !is_operation {{
              head[row] = word
              a0[row] = a
              a1[row] = b
              a2[row] = c
            }}
            let around = 0
            if is_operation {{
              around = max(early[a], early[b])
              if c != {NONE} {{ around = max(around, early[c]) }}
            }}
            if around != 0 {{ early[row] = around }}
          }}
        }} else if kind == {Kind.LOAD.value} {{
          let index = {resolved("a0[row]")}
          a0[row] = index
          early[row] = max(early[index], scope[row])
        }} else if (kind == {Kind.PHI.value}) | (kind == {Kind.JOIN.value}) {{
          let first = {resolved("a0[row]")}
          let second = {resolved("a1[row]")}
          let condition = {resolved("a2[row]")}
          a0[row] = first
          a1[row] = second
          a2[row] = condition
          early[row] = scope[row]
          let one = {NONE}
          if (head[condition] & 255) == {Kind.LITERAL.value} {{
            one = select(a0[condition] == 0, second, first)
          }} else if (second == {NONE}) | {same_value("first", "second")} {{
            one = first
          }}
          if one != {NONE} {{
            let around = early[one]
            if (around <= scope[row]) & (scope[row] <= scope_last[around]) {{ canon[row] = one }}
          }}
        }} else if kind == {Kind.LOOP.value} {{
          early[row] = scope[row]
          if settled[row] != 0 {{ canon[row] = {resolved("a0[row]")} }}
        }} else if kind == {Kind.PINNED.value} {{
          a0[row] = {resolved("a0[row]")}
          a1[row] = {resolved("a1[row]")}
          a2[row] = {resolved("a2[row]")}
          early[row] = scope[row]
        }} else {{
          early[row] = scope[row]
          if kind == {Kind.LITERAL.value} {{
            let low = a0[row]
            let high = a1[row]
            {note_literal("row", "word", "low", "high")}
          }}
        }}
        {_KEY}
        if is_narrow {{ {_intern(alone=True)} }}
        at = at + step
      }}
      if !is_narrow {{
        grid_sync
        at = start + me
        while at < end {{
          let row = needed_order[at]
          {_intern(alone=False)}
          at = at + stride
        }}
        grid_sync
        at = start + me
        while at < end {{
          let row = needed_order[at]
          if canon[row] >= {SLOT} {{ canon[row] = best[canon[row] & {SLOT - 1}] }}
          at = at + stride
        }}
      }}
    }}
    grid_sync
    {_own_part("looked", "rows", _LOOK_AT_LOOP)}
    grid_sync
    sweep = sweep + 1
  }}
  if me == 0 {{ fired[0] = sweep }}
}}
"""


def _runs(scope: str, into: str) -> str:
    """Statements that find whether the list of a scope may run: no known condition around it says otherwise."""
    literal = Kind.LITERAL.value
    return f"""
      let {into} = true
      let {into}_scope = {scope}
      while {into} {{
        let control = scope_control[{into}_scope]
        let arm = scope_arm[{into}_scope]
        if arm != {Arm.ALWAYS.value} {{
          let one = canon[a0[control]]
          let one_known = (head[one] & 255) == {literal}
          if arm == {Arm.IN_RANGE.value} {{
            let two = canon[a1[control]]
            {into} = !(one_known & ((head[two] & 255) == {literal}) & (a0[one] >= a0[two]))
          }} else {{
            {into} = !(one_known & ((a0[one] != 0) != (arm == {Arm.IF_TRUE.value})))
          }}
        }}
        if {into}_scope == 0 {{ break }}
        {into}_scope = scope_parent[{into}_scope]
      }}"""


def _follow(needed: str) -> str:
    return f"""
        if {needed} != {NONE} {{
          let state = 1
          if (head[{needed}] & 255) >= {Kind.EFFECT.value} {{
            {_runs(f"scope[{needed}]", "reached")}
            state = select(reached, 1, 2)
          }}
          let before = atomic_compare_exchange(live, {needed}, 0, state)
          if before == 0 {{
            if following == {NONE} {{
              following = {needed}
            }} else {{
              let place = atomic_add(tail, 0, 1)
              queue[place] = {needed}
            }}
          }}
        }}"""


def _uses_something(kind: str) -> str:
    bits = sum(1 << kind.value for kind in USES_NOTHING)
    return f"(({bits} >> {kind} & 1) == 0)"


_BEGIN: Final = f"""
      let word = given_head[k]
      let kind = word & 255
      if (kind == {Kind.EFFECT.value}) | ((kind > {Kind.EFFECT.value}) & ((word >> 16 != 0) | keeps)) {{
        {_runs("scope[k]", "running")}
        if running {{
          let unused = atomic_store(live, k, 1)
          let place = atomic_add(tail, 0, 1)
          queue[place] = k
        }}
      }}"""

_LIVE: Final = f"""
program live(workgroup {WORKGROUP}) {{{_RECORDS}
  buffer 1 given_head: u32[] read
  buffer 2 scope: u32[] read
  buffer 3 d0: u32[] read
  buffer 4 d1: u32[] read
  buffer 5 scope_parent: u32[] read
  buffer 6 scope_control: u32[] read
  buffer 7 scope_arm: u32[] read
  buffer 8 params: u32[] read
  buffer 9 queue: u32[] readwrite
  buffer 10 tail: u32[1] readwrite

  let me = gid.x
  let stride = num_wg.x * {WORKGROUP}
  let rows = params[1]
  let keeps = (params[0] & {PASSES["dead"]}) == 0
  if me == 0 {{ tail[0] = 0 }}
  grid_sync
  {_own_part("k", "rows", _BEGIN)}
  grid_sync
  let first = 0
  let last = tail[0]
  while first < last {{
    grid_sync
    let at = first + me
    while at < last {{
      let row = queue[at]
      while row != {NONE} {{
        let kind = head[row] & 255
        let following = {NONE}
        let is_running = atomic_load(live, row) == 1
        let u0 = {NONE}
        let u1 = {NONE}
        let u2 = {NONE}
        let def0 = {NONE}
        let def1 = {NONE}
        if is_running & (row < rows) {{
          def0 = d0[row]
          def1 = d1[row]
          if {_uses_something("kind")} {{
            u0 = select(a0[row] == {NONE}, {NONE}, canon[a0[row]])
            if kind != {Kind.LOAD.value} {{
              u1 = select(a1[row] == {NONE}, {NONE}, canon[a1[row]])
              u2 = select(a2[row] == {NONE}, {NONE}, canon[a2[row]])
            }}
          }}
        }} else if kind == {Kind.JUMP.value} {{
          def1 = d1[row]
        }}
        for turn in 0 .. 5 {{
          let needed = select(turn == 0, u0, select(turn == 1, u1, select(turn == 2, u2,
                       select(turn == 3, def0, def1))))
          {_follow("needed")}
        }}
        row = following
      }}
      at = at + stride
    }}
    grid_sync
    first = last
    last = tail[0]
  }}
}}
"""


def _use(used: str, scope: str) -> str:
    """Statements that note one use of a value in a scope."""
    return f"""
        if {used} != {NONE} {{
          let counted = atomic_add(uses, {used}, 1)
          let seen = atomic_load(place, {used})
          let open = true
          while open {{
            let met = {scope}
            if seen != {NONE} {{
              met = seen
              while (met > {scope}) | ({scope} > scope_last[met]) {{ met = scope_parent[met] }}
            }}
            if met == seen {{
              open = false
            }} else {{
              let got = atomic_compare_exchange(place, {used}, seen, met)
              open = got != seen
              seen = got
            }}
          }}
        }}"""


def _uses_of(row: str, kind: str, scope: str) -> str:
    return f"""
      if {_uses_something(kind)} {{
        for turn in 0 .. 3 {{
          let arg = select(turn == 0, a0[{row}], select(turn == 1, a1[{row}], a2[{row}]))
          if (arg != {NONE}) & ((turn == 0) | ({kind} != {Kind.LOAD.value})) {{
            let used = canon[arg]
            {_use("used", scope)}
          }}
        }}
      }}"""


_USE_BY_STATEMENT: Final = f"""
      let kind = given_head[k] & 255
      if (kind >= {Kind.EFFECT.value}) & (live[k] == 1) {{
        let stands = scope[k]
        {_uses_of("k", "kind", "stands")}
      }}"""

_PLACE: Final = f"""
program place(workgroup {WORKGROUP}) {{{_RECORDS}
  buffer 1 given_head: u32[] read
  buffer 2 scope: u32[] read
  buffer 3 stretches: u32[] read
  buffer 4 needed_order: u32[] read
  buffer 5 needed_count: u32[] read
  buffer 6 scope_parent: u32[] read
  buffer 7 scope_last: u32[] read
  buffer 8 scope_loops: u32[] read
  buffer 9 scope_meetings: u32[] read
  buffer 10 meetings: u32[] read
  buffer 11 params: u32[] read

  let me = gid.x
  let stride = num_wg.x * {WORKGROUP}
  let rows = params[1]
  let stretch_count = params[3]
  let moves = (params[0] & {PASSES["motion"]}) != 0
  {_own_part("k", "rows", _USE_BY_STATEMENT)}
  let here = stretch_count
  while here > 0 {{
    grid_sync
    here = here - 1
    {_stretch("here")}
    {_LEFT}
    let step = select(is_narrow, 1, stride)
    let at = select(is_narrow & (me != 0), end, start + me)
    while at < end {{
      let row = needed_order[select(is_narrow, end - 1 - (at - start), at)]
      if (live[row] == 1) & (canon[row] == row) {{
        let kind = head[row] & 255
        if kind == {Kind.PINNED.value} {{
          let stands = scope[row]
          {_uses_of("row", "kind", "stands")}
        }} else if (kind >= {MOVABLE[0].value}) & (kind <= {MOVABLE[-1].value}) {{
          let inner = place[row]
          if inner != {NONE} {{
            let chosen = inner
            let outermost = early[row]
            let stays_in = min(meetings[row], scope_meetings[inner])
            while moves & (inner != outermost) {{
              inner = scope_parent[inner]
              if (scope_loops[inner] < scope_loops[chosen]) & (scope_meetings[inner] >= stays_in) {{ chosen = inner }}
            }}
            place[row] = chosen
            {_uses_of("row", "kind", "chosen")}
          }}
        }}
      }}
      at = at + step
    }}
  }}
}}
"""

_PACK: Final = f"""
program pack(workgroup {WORKGROUP}) {{
  buffer 0 records: u32[] read
  buffer 1 found_canon: u32[] readwrite
  buffer 2 found_head: u32[] readwrite
  buffer 3 found_a0: u32[] readwrite
  buffer 4 found_a1: u32[] readwrite
  buffer 5 found_a2: u32[] readwrite
  buffer 6 packed: u32[] readwrite

  let k = gid.x
  if k < len(packed) {{
    found_canon[k] = canon[k]
    found_head[k] = head[k]
    found_a0[k] = a0[k]
    found_a1[k] = a1[k]
    found_a2[k] = a2[k]
    let where = select(place[k] == {NONE}, {PACKED_NOWHERE}, place[k])
    packed[k] = where << 2 | select(uses[k] > 1, 2, 0) | select(live[k] == 1, 1, 0)
  }}
}}
"""


class Kernels(msgspec.Struct, frozen=True, eq=False):
    """The optimizer's programs, in the order in which they run."""

    need: Program
    simplify: Program
    live: Program
    place: Program
    pack: Program


@cache
def kernels(floats: tuple[DType, ...] = FLOATS) -> Kernels:
    """The programs, made once; constants are evaluated in these floats only."""
    from vyre.ir.parser import parse

    body = evaluate(floats)

    def fill(statement: n.Stmt) -> tuple[n.Stmt, ...]:
        return body if isinstance(statement, n.Region) else (statement,)

    simplify = parse(_simplify())
    simplify = simplify.with_entry(walk.rewrite(simplify.entry, on_statement=fill))
    live = parse(_LIVE)
    live = live.with_entry((n.Region(LIVE, None, live.entry),))
    return Kernels(*map(in_records, (parse(_NEED), simplify, live, parse(_PLACE), parse(_PACK))))
