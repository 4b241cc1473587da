"""The optimizer's five kernels: vyre programs on the columns of an arena, for any number of rows.

1. ``need`` marks the values that statements and cells depend on; later kernels skip all others.
2. ``simplify`` processes the rows by level, operands first. It replaces each row's operands by their representatives,
   folds constants and applies rules. Then it looks the row up in a hash table: the least equal row of its level
   becomes the representative of all. Loop rows whose cell turns out to be invariant are recorded, and then all is
   repeated from the given rows, since literals that rules made depend on them.
3. ``live`` marks the rows that effects need.
4. ``place`` chooses for each value the scope in which to compute it. A loop that contains a barrier keeps its values
   and receives no others: a value that crosses a barrier must be spilled or rematerialized.
5. ``pack`` compresses what the host reads.

A grid barrier separates level ranges (see ``layout``), so the host takes no part. It stands at the beginning of a
loop's body, so that the code of each barrier interval exists once. Columns that are not buffers of a kernel are fields
of one (``records``).
"""

from __future__ import annotations

from functools import cache
from typing import Final

import msgspec

from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.program import Program
from vyre.optimizer.arena import MOVABLE, NONE, OPERATIONS, WITHOUT_OPERANDS, Arm, Kind
from vyre.optimizer.bytecode import rule_table
from vyre.optimizer.evaluate import evaluate
from vyre.optimizer.layout import PACKED_NOWHERE, SERIAL, WORKGROUP, in_records
from vyre.optimizer.rewrite import resolved, rewriting, same_value, set_literal_bits
from vyre.optimizer.switches import PASSES
from vyre.semantics.operators import OPERATORS
from vyre.semantics.types import FLOATS, DType

# Marks a representative that is still the number of a hash table slot.
SLOT: Final = 1 << 31
# How often the rows are simplified anew after a loop row was found invariant.
MOST_SWEEPS: Final = 4
# The generator of the region around the body of ``live``, by which dispatchers recognize it.
LIVE: Final = "vyre.optimizer.live"

_RECORDS: Final = """
  buffer 0 records: u32[] readwrite"""


def _loop_over_share(number: str, limit: str, body: str) -> str:
    """Statements that run ``body`` for this invocation's contiguous share of the numbers below a limit."""
    return f"""
    let {number}_share = ({limit} + stride - 1) / stride
    let {number} = min(invocation * {number}_share, {limit})
    let {number}_end = min({number} + {number}_share, {limit})
    while {number} < {number}_end {{{body}
      {number} = {number} + 1
    }}"""


def _level_range(number: str) -> str:
    """Statements that read the bounds of a level range and whether it is serial."""
    return f"""
      let start = level_ranges[{number}] & {SERIAL - 1}
      let end = level_ranges[{number} + 1] & {SERIAL - 1}
      let is_serial = level_ranges[{number}] >= {SERIAL}"""


# Restricts a level range to its needed rows.
_NEEDED_ONLY: Final = "start = end - needed_count[range]"


def _is_commutative(word: str) -> str:
    """An expression: whether a row is a commutative operation."""
    words = [0, 0, 0]
    for code, name in enumerate(OPERATIONS):
        if name in OPERATORS and OPERATORS[name].commutative:
            words[code >> 5] |= 1 << (code & 31)
    operation = f"({word} >> 16)"
    chosen = f"select({operation} < 32, {words[0]}, select({operation} < 64, {words[1]}, {words[2]}))"
    return f"((({word} & 255) == {Kind.OPERATION.value}) & (({chosen} >> ({operation} & 31) & 1) == 1))"


def _literal_key(row: str) -> str:
    """Statements that set the hash of an operand, if it is a literal, to one of its bits: equal literals hash alike."""
    bits = f"(a0[{row}] ^ rotl(a1[{row}], 7)) * 0x9e3779b1 + head[{row}]"
    return f"if (head[{row}] & 255) == {Kind.LITERAL.value} {{ {row}_key = {bits} }}"


def _intern(*, serial: bool) -> str:
    """Statements that look the row up in the hash table and set its representative.

    In a parallel level, the representative is the least row that claims the slot, known when all rows have claimed.
    In a serial range, every equal row is of an earlier level, and no access needs to be atomic, so the processor
    continues while it waits for the table.
    """
    if serial:
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
        let own_hash = key[row]
        if own_hash != 0 {{
          let slot = own_hash >> 1 & table_mask
          let searching = true
          while searching {{
            let found = {take}
            if found == {NONE} {{
              searching = false
              {claim}
            }} else {{
              let equal = key[found] == own_hash
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
                  let same_order = {same_value("x", "x1")} & {same_value("y", "y1")}
                  let swapped = {_is_commutative("made")} & {same_value("x", "y1")} & {same_value("y", "x1")}
                  equal = equal & (same_order | swapped) & {same_value("z", "z1")}
                  equal = equal & ((sort != {Kind.PHI.value}) | (scope[row] == scope[found]))
                }}
              }}
              if equal {{
                searching = false
                {share}
              }} else {{
                slot = slot + 1 & table_mask
              }}
            }}
          }}
        }}"""


# Sets the hash of a row that is to be looked up, 0 for others, while its operands are in cache.
_KEY: Final = f"""
        let hash = 0
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
            {_literal_key("x")}
            if sort != {Kind.LOAD.value} {{
              {_literal_key("y")}
              if z != {NONE} {{ {_literal_key("z")} }}
            }}
            hash = select({_is_commutative("made")}, x_key + y_key, rotl(x_key, 5) + y_key)
            hash = hash ^ rotl(z_key, 11) ^ made * 0xc2b2ae35
            hash = (hash ^ hash >> 15) * 0x27d4eb2f
            hash = hash ^ hash >> 13 | 1
          }}
        }}
        key[row] = hash"""

_CLEAR_SLOT: Final = f"""
      slots[empty] = {NONE}
      best[empty] = {NONE}"""
_CLEAR_COUNT: Final = """
      fired[tally] = 0"""

# Rows from ``rows`` on are the literal rows: row ``rows + k`` is for a literal that a rule makes for row k.
_RESET_RECORD: Final = f"""
      let is_row = k < rows
      head[k] = select(is_row, given_head[k], {NONE})
      a0[k] = select(is_row, given_a0[k], {NONE})
      a1[k] = select(is_row, given_a1[k], {NONE})
      a2[k] = select(is_row, given_a2[k], {NONE})
      canon[k] = k
      earliest[k] = 0
      place[k] = {NONE}
      uses[k] = 0
      known0[k] = 0
      known1[k] = 0
      known2[k] = 0
      known3[k] = 0
      live[k] = 0
      level[k] = given_level[k]"""

_CHECK_LOOP: Final = f"""
      if ((given_head[loop_row] & 255) == {Kind.LOOP.value}) & (invariant[loop_row] == 0) {{
        let row = loop_row
        let back = {resolved("a1[row]")}
        let before = {resolved("a0[row]")}
        if (back == {NONE}) | (back == row) | {same_value("back", "before")} {{
          invariant[row] = 1
          needs_sweep[0] = 1
        }}
      }}"""


def _mark_needed(row: str) -> str:
    """A statement that marks a row, if there is one, as needed."""
    return f"if {row} != {NONE} {{ let unused = atomic_store(needed, {row}, 1) }}"


# Statements are needed. Rows of cells are taken as needed, because they refer to each other in cycles.
_NEED_STATEMENT: Final = f"""
      if (given_head[k] & 255) >= {Kind.PHI.value} {{
        let statement = k
        let x = given_a0[k]
        let y = given_a1[k]
        let z = given_a2[k]
        {_mark_needed("statement")}
        {_mark_needed("x")}
        {_mark_needed("y")}
        {_mark_needed("z")}
      }}"""

_NEED: Final = f"""
program need(workgroup {WORKGROUP}) {{
  buffer 0 given_head: u32[] read
  buffer 1 given_a0: u32[] read
  buffer 2 given_a1: u32[] read
  buffer 3 given_a2: u32[] read
  buffer 4 order: u32[] read
  buffer 5 level_ranges: u32[] read
  buffer 6 params: u32[] read
  buffer 7 needed: u32[] readwrite
  buffer 8 needed_order: u32[] readwrite
  buffer 9 needed_count: u32[] readwrite

  let invocation = gid.x
  let stride = num_wg.x * {WORKGROUP}
  let rows = params[1]
  {_loop_over_share("k", "rows", _NEED_STATEMENT)}
  let range = params[3]
  while range > 0 {{
    grid_sync
    range = range - 1
    {_level_range("range")}
    let step = select(is_serial, 1, stride)
    let position = select(is_serial & (invocation != 0), end, start + invocation)
    while position < end {{
      let row = order[select(is_serial, end - 1 - (position - start), position)]
      if needed[row] != 0 {{
        needed_order[end - 1 - atomic_add(needed_count, range, 1)] = row
        let kind = given_head[row] & 255
        if (kind == {Kind.OPERATION.value}) | (kind == {Kind.LOAD.value}) | (kind == {Kind.PINNED.value}) {{
          let x = given_a0[row]
          {_mark_needed("x")}
          if kind != {Kind.LOAD.value} {{
            let y = given_a1[row]
            let z = given_a2[row]
            {_mark_needed("y")}
            {_mark_needed("z")}
          }}
        }}
      }}
      position = position + step
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
  buffer 7 level_ranges: u32[] read
  buffer 8 needed_order: u32[] read
  buffer 9 needed_count: u32[] read
  buffer 10 scope_last: u32[] read
  buffer 11 params: u32[] read
  buffer 12 table: u32[] readwrite
  buffer 13 needs_sweep: u32[1] readwrite
  buffer 14 fired: u32[] readwrite
  buffer 15 invariant: u32[] readwrite
  buffer 16 rules: u32[] read
  buffer 17 registers: u64[] readwrite

  let invocation = gid.x
  let stride = num_wg.x * {WORKGROUP}
  let rows = params[1]
  let table_mask = params[2]
  let range_count = params[3]
  let shares = (params[0] & {PASSES["share"]}) != 0
  let sweep = 0
  while (sweep == 0) | ((needs_sweep[0] != 0) & (sweep < {MOST_SWEEPS})) {{
    grid_sync
    if invocation == 0 {{ needs_sweep[0] = 0 }}
    {_loop_over_share("empty", "table_mask + 1", _CLEAR_SLOT)}
    {_loop_over_share("tally", "len(fired)", _CLEAR_COUNT)}
    {_loop_over_share("k", "2 * rows", _RESET_RECORD)}
    let range = 0
    while range < range_count {{
      grid_sync
      {_level_range("range")}
      {_NEEDED_ONLY}
      range = range + 1
      let step = select(is_serial, 1, stride)
      let position = select(is_serial & (invocation != 0), end, start + invocation)
      while position < end {{
        let row = needed_order[position]
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
          let literal_row = rows + row
          let target = row
          {rewriting(rule_table())}
          if forwarded {{
            canon[row] = target
          }} else {{
            let is_operation = (word & 255) == {Kind.OPERATION.value}
            let is_changed = (a != old_a) | (b != old_b) | (c != old_c)
            if is_changed | (steps > 1) | !is_operation {{
              head[row] = word
              a0[row] = a
              a1[row] = b
              a2[row] = c
            }}
            let outermost = 0
            if is_operation {{
              outermost = max(earliest[a], earliest[b])
              if c != {NONE} {{ outermost = max(outermost, earliest[c]) }}
            }}
            if outermost != 0 {{ earliest[row] = outermost }}
          }}
        }} else if kind == {Kind.LOAD.value} {{
          let index = {resolved("a0[row]")}
          a0[row] = index
          earliest[row] = max(earliest[index], scope[row])
        }} else if (kind == {Kind.PHI.value}) | (kind == {Kind.JOIN.value}) {{
          let first = {resolved("a0[row]")}
          let second = {resolved("a1[row]")}
          let condition = {resolved("a2[row]")}
          a0[row] = first
          a1[row] = second
          a2[row] = condition
          earliest[row] = scope[row]
          let single = {NONE}
          if (head[condition] & 255) == {Kind.LITERAL.value} {{
            single = select(a0[condition] == 0, second, first)
          }} else if (second == {NONE}) | {same_value("first", "second")} {{
            single = first
          }}
          if single != {NONE} {{
            let outermost = earliest[single]
            if (outermost <= scope[row]) & (scope[row] <= scope_last[outermost]) {{ canon[row] = single }}
          }}
        }} else if kind == {Kind.LOOP.value} {{
          earliest[row] = scope[row]
          if invariant[row] != 0 {{ canon[row] = {resolved("a0[row]")} }}
        }} else if kind == {Kind.PINNED.value} {{
          a0[row] = {resolved("a0[row]")}
          a1[row] = {resolved("a1[row]")}
          a2[row] = {resolved("a2[row]")}
          earliest[row] = scope[row]
        }} else {{
          earliest[row] = scope[row]
          if kind == {Kind.LITERAL.value} {{
            let low = a0[row]
            let high = a1[row]
            {set_literal_bits("row", "word", "low", "high")}
          }}
        }}
        {_KEY}
        if is_serial {{ {_intern(serial=True)} }}
        position = position + step
      }}
      if !is_serial {{
        grid_sync
        position = start + invocation
        while position < end {{
          let row = needed_order[position]
          {_intern(serial=False)}
          position = position + stride
        }}
        grid_sync
        position = start + invocation
        while position < end {{
          let row = needed_order[position]
          if canon[row] >= {SLOT} {{ canon[row] = best[canon[row] & {SLOT - 1}] }}
          position = position + stride
        }}
      }}
    }}
    grid_sync
    {_loop_over_share("loop_row", "rows", _CHECK_LOOP)}
    grid_sync
    sweep = sweep + 1
  }}
  if invocation == 0 {{ fired[0] = sweep }}
}}
"""


def _may_run(scope: str, result: str) -> str:
    """Statements that find whether the list of a scope may run: no literal condition or bound around it prevents it."""
    literal = Kind.LITERAL.value
    return f"""
      let {result} = true
      let {result}_scope = {scope}
      while {result} {{
        let control = scope_control[{result}_scope]
        let arm = scope_arm[{result}_scope]
        if arm != {Arm.ALWAYS.value} {{
          let operand = canon[a0[control]]
          let is_known = (head[operand] & 255) == {literal}
          if arm == {Arm.IN_RANGE.value} {{
            let upper = canon[a1[control]]
            {result} = !(is_known & ((head[upper] & 255) == {literal}) & (a0[operand] >= a0[upper]))
          }} else {{
            {result} = !(is_known & ((a0[operand] != 0) != (arm == {Arm.IF_TRUE.value})))
          }}
        }}
        if {result}_scope == 0 {{ break }}
        {result}_scope = scope_parent[{result}_scope]
      }}"""


def _visit(needed: str) -> str:
    """Statements that mark a needed row and queue it, or follow it next."""
    return f"""
        if {needed} != {NONE} {{
          let state = 1
          if (head[{needed}] & 255) >= {Kind.EFFECT.value} {{
            {_may_run(f"scope[{needed}]", "reached")}
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


def _has_operands(kind: str) -> str:
    """An expression: whether rows of a kind have operands."""
    bits = sum(1 << kind.value for kind in WITHOUT_OPERANDS)
    return f"(({bits} >> {kind} & 1) == 0)"


_QUEUE_ROOT: Final = f"""
      let word = given_head[k]
      let kind = word & 255
      if (kind == {Kind.EFFECT.value}) | ((kind > {Kind.EFFECT.value}) & ((word >> 16 != 0) | keeps)) {{
        {_may_run("scope[k]", "running")}
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

  let invocation = gid.x
  let stride = num_wg.x * {WORKGROUP}
  let rows = params[1]
  let keeps = (params[0] & {PASSES["dead"]}) == 0
  if invocation == 0 {{ tail[0] = 0 }}
  grid_sync
  {_loop_over_share("k", "rows", _QUEUE_ROOT)}
  grid_sync
  let first = 0
  let last = tail[0]
  while first < last {{
    grid_sync
    let position = first + invocation
    while position < last {{
      let row = queue[position]
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
          if {_has_operands("kind")} {{
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
          {_visit("needed")}
        }}
        row = following
      }}
      position = position + stride
    }}
    grid_sync
    first = last
    last = tail[0]
  }}
}}
"""


def _count_use(used: str, scope: str) -> str:
    """Statements that count one use of a value and widen its place to a scope around that of the use."""
    return f"""
        if {used} != {NONE} {{
          let counted = atomic_add(uses, {used}, 1)
          let current = atomic_load(place, {used})
          let retry = true
          while retry {{
            let common = {scope}
            if current != {NONE} {{
              common = current
              while (common > {scope}) | ({scope} > scope_last[common]) {{ common = scope_parent[common] }}
            }}
            if common == current {{
              retry = false
            }} else {{
              let found = atomic_compare_exchange(place, {used}, current, common)
              retry = found != current
              current = found
            }}
          }}
        }}"""


def _count_operand_uses(row: str, kind: str, scope: str) -> str:
    """Statements that count the uses of a row's operands in a scope."""
    return f"""
      if {_has_operands(kind)} {{
        for turn in 0 .. 3 {{
          let arg = select(turn == 0, a0[{row}], select(turn == 1, a1[{row}], a2[{row}]))
          if (arg != {NONE}) & ((turn == 0) | ({kind} != {Kind.LOAD.value})) {{
            let used = canon[arg]
            {_count_use("used", scope)}
          }}
        }}
      }}"""


_USE_IN_STATEMENT: Final = f"""
      let kind = given_head[k] & 255
      if (kind >= {Kind.EFFECT.value}) & (live[k] == 1) {{
        let scope_of_use = scope[k]
        {_count_operand_uses("k", "kind", "scope_of_use")}
      }}"""

_PLACE: Final = f"""
program place(workgroup {WORKGROUP}) {{{_RECORDS}
  buffer 1 given_head: u32[] read
  buffer 2 scope: u32[] read
  buffer 3 level_ranges: u32[] read
  buffer 4 needed_order: u32[] read
  buffer 5 needed_count: u32[] read
  buffer 6 scope_parent: u32[] read
  buffer 7 scope_last: u32[] read
  buffer 8 scope_loops: u32[] read
  buffer 9 scope_barrier_depth: u32[] read
  buffer 10 row_barrier_depth: u32[] read
  buffer 11 params: u32[] read

  let invocation = gid.x
  let stride = num_wg.x * {WORKGROUP}
  let rows = params[1]
  let range_count = params[3]
  let moves = (params[0] & {PASSES["motion"]}) != 0
  {_loop_over_share("k", "rows", _USE_IN_STATEMENT)}
  let range = range_count
  while range > 0 {{
    grid_sync
    range = range - 1
    {_level_range("range")}
    {_NEEDED_ONLY}
    let step = select(is_serial, 1, stride)
    let position = select(is_serial & (invocation != 0), end, start + invocation)
    while position < end {{
      let row = needed_order[select(is_serial, end - 1 - (position - start), position)]
      if (live[row] == 1) & (canon[row] == row) {{
        let kind = head[row] & 255
        if kind == {Kind.PINNED.value} {{
          let scope_of_use = scope[row]
          {_count_operand_uses("row", "kind", "scope_of_use")}
        }} else if (kind >= {MOVABLE[0].value}) & (kind <= {MOVABLE[-1].value}) {{
          let inner = place[row]
          if inner != {NONE} {{
            let chosen = inner
            let outermost = earliest[row]
            let depth = min(row_barrier_depth[row], scope_barrier_depth[inner])
            while moves & (inner != outermost) {{
              inner = scope_parent[inner]
              let is_outside = scope_loops[inner] < scope_loops[chosen]
              if is_outside & (scope_barrier_depth[inner] >= depth) {{ chosen = inner }}
            }}
            place[row] = chosen
            {_count_operand_uses("row", "kind", "chosen")}
          }}
        }}
      }}
      position = position + step
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
    let packed_place = select(place[k] == {NONE}, {PACKED_NOWHERE}, place[k])
    packed[k] = packed_place << 2 | select(uses[k] > 1, 2, 0) | select(live[k] == 1, 1, 0)
  }}
}}
"""


class Kernels(msgspec.Struct, frozen=True, eq=False):
    """The kernels, in the order in which they run."""

    need: Program
    simplify: Program
    live: Program
    place: Program
    pack: Program


@cache
def kernels(floats: tuple[DType, ...] = FLOATS) -> Kernels:
    """Return the programs, made once; constants are evaluated in these float types only."""
    from vyre.ir.parser import parse

    body = evaluate(floats)

    def fill(statement: n.Stmt) -> tuple[n.Stmt, ...]:
        return body if isinstance(statement, n.Region) else (statement,)

    simplify = parse(_simplify())
    simplify = simplify.with_entry(walk.rewrite(simplify.entry, on_statement=fill))
    live = parse(_LIVE)
    live = live.with_entry((n.Region(LIVE, None, live.entry),))
    return Kernels(*map(in_records, (parse(_NEED), simplify, live, parse(_PLACE), parse(_PACK))))
