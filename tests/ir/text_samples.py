"""Programs for the tests of the text form: every node, every odd thing that has a text, legal or not."""

from __future__ import annotations

from random import Random
from typing import Any

from vyre.ir import nodes as n
from vyre.ir.buffers import Access, BufferDecl
from vyre.ir.forms import EXPRESSION_FORMS, ID_WORDS, STATEMENT_FORMS, Form, Slot
from vyre.ir.names import is_identifier
from vyre.ir.program import Program
from vyre.semantics.operators import BINARY, UNARY
from vyre.semantics.scalars import CANONICAL_NAN, from_bits
from vyre.semantics.types import DType

# Words that mean something elsewhere are good names, because the grammar must keep them apart.
NAMES = (
    "a", "b", "x", "_", "x1", "min", "len", "gid", "wg", "block", "region", "buffer", "program", "from", "output",
    "opaque", "trap", "relaxed", "select", "e5", "u320", "infinity", "workgroup", "L" * 256,
)  # fmt: skip
STRINGS = ("", "tag", 'quo"te', "back\\slash", "new\nline\ttab", "a b#c", "\x00\x1f\x7f\u2028\ufeff", "日本 \U0001f600")

REACH = """\
program reach(workgroup 256) {
  buffer 0 offsets: u32[] read
  buffer 1 targets: u32[] read
  buffer 2 front:   u32[] read
  buffer 3 next:    u32[] readwrite
  buffer 4 changed: u32[1] output

  let i = gid.x
  if i < len(offsets) - 1 {
    if (front[i >> 5] >> (i & 31) & 1) == 1 {
      for e in offsets[i] .. offsets[i + 1] {
        let t = targets[e]
        let old = atomic_or(next, t >> 5, 1 << (t & 31))
        if (old >> (t & 31) & 1) == 0 {
          changed[0] = 1
        }
      }
    }
  }
  grid_sync
}"""

EVERYTHING = """\
# Every form of the language once, as a person might write it.
program everything(workgroup 8, 4, subgroup 16) {
  buffer 0  a:    u32[] read  # sized at run time
  buffer 1  out:  f32[16] output bytes 0..32 hint layout "soa" hint "odd key" "x"
  buffer 2  w:    bf16[4] writeonly live_out; buffer 3 u: f64[1] uniform
  buffer -1 tile: i8[64] workgroup

  indirect_dispatch(a, 16)
  let x = (gid.x + lid.y * wg.z
    - num_wg.x) % 0x1f
  x = -5i32; y = -(5i32) - -y
  out[x] = select(!(x == 1), f32(a[x]), bitcast(f32, x)) + fma(0.5, 1e-3, -0.0)
  while true { if x < 3 { break } else if x > 5 { continue } else { return } }
  for k in 0 .. len(a) { }
  barrier; barrier(acquire); grid_sync
  block { region "gen" { region "gen" from "src" { x = atomic_load(a, 0, relaxed) } } }
  let c = atomic_compare_exchange(a, 1, 2, 3) ^ atomic_add(a, 0, 1)
  let s = subgroup_ballot(x < 3) | subgroup_shuffle(x, 1) & subgroup_reduce(add, x) << subgroup_lane()
  let width = subgroup_size()
  let o = call("op.id", x, inff64, nanbf16, -inf, 0x1.8p3f16) + opaque("kind", x"00ff")
  async_load(a, out, 0, 16, "t"); async_store(a, out, 0, 16, "t"); async_wait("t")
  copy_bytes(a, out, 0, 4, 8)
  trap(x, "page\\n\\u{1F600}"); resume("page")
  all_reduce(add, a, "world"); all_gather(a, out, "g"); reduce_scatter(max, a, out, "g"); broadcast(a, 0, "g")
  opaque("kind", x"")
}
"""


def random_literal(random: Random) -> n.Lit:
    dtype = random.choice(list(DType))
    bits = random.choice((0, 1, random.getrandbits(dtype.bits), (1 << dtype.bits) - 1, 1 << (dtype.bits - 1)))
    bits &= (1 << dtype.bits) - 1
    value = from_bits(bits, dtype)
    return n.Lit(bits if value == value else CANONICAL_NAN[dtype], dtype)


def random_expression(random: Random, size: int) -> n.Expr:
    """An expression of about so many nodes."""
    if size <= 1:
        return random.choice(_LEAVES)(random)
    match random.randrange(6):
        case 0:
            return n.Load(random.choice(NAMES), random_expression(random, size - 1))
        case 1:
            return n.UnOp(random.choice(list(UNARY)), random_expression(random, size - 1))
        case 2:
            return _random_call(random, random.choice(list(EXPRESSION_FORMS.values())), size)  # type: ignore[return-value]
        case _:
            left = random.randrange(1, size)
            return n.BinOp(
                random.choice(list(BINARY)), random_expression(random, left), random_expression(random, size - left)
            )


_LEAVES = (
    random_literal,
    random_literal,
    lambda random: n.Var(random.choice(NAMES)),
    lambda random: random.choice(list(ID_WORDS.values()))(random.randrange(3)),
)


def _random_call(random: Random, form: Form, size: int) -> n.Node:
    def argument(slot: Slot) -> Any:
        match slot:
            case Slot.EXPRESSION:
                return random_expression(random, size // (len(form.slots) + 1))
            case Slot.REST:
                return tuple(random_expression(random, size // 4) for _ in range(random.randrange(4)))
            case Slot.NAME | Slot.OPERATOR:
                return random.choice(NAMES)
            case Slot.TYPE:
                return random.choice(list(DType))
            case Slot.STRING:
                return random.choice(STRINGS)
            case Slot.INTEGER:
                return random.choice((0, 16, -1, 1 << 40))
            case Slot.BYTES:
                return random.randbytes(random.randrange(5))
            case Slot.ORDER:
                return random.choice(list(n.MemoryOrder))

    fields = {field: argument(slot) for slot, field in zip(form.slots, form.fields, strict=True)}
    return form.node(**form.fixed, **fields)


def random_body(random: Random, size: int, nesting: int = 0) -> n.Body:
    return tuple(random_statement(random, size, nesting) for _ in range(random.randrange(size + 1)))


def random_statement(random: Random, size: int, nesting: int = 0) -> n.Stmt:
    def expression() -> n.Expr:
        return random_expression(random, random.randrange(1, 12))

    def body() -> n.Body:
        return random_body(random, size // 2, nesting + 1) if nesting < 6 else ()

    name = random.choice(NAMES)
    match random.randrange(14):
        case 0 | 1:
            return n.Let(name, expression())
        case 2:
            return n.Assign(name, expression())
        case 3 | 4:
            return n.Store(name, expression(), expression())
        case 5:
            return n.If(expression(), body(), body())
        case 6:
            inner = n.If(expression(), body(), body())
            return n.If(expression(), body(), (inner,))
        case 7:
            return n.Loop(name, expression(), expression(), body())
        case 8:
            return n.While(expression(), body())
        case 9:
            return random.choice((n.Break(), n.Continue(), n.Return()))
        case 10:
            return n.Barrier(random.choice(list(n.MemoryOrder)))
        case 11:
            return n.Block(body())
        case 12:
            return n.Region(random.choice(STRINGS), random.choice((None, *STRINGS)), body())
        case _:
            return _random_call(random, random.choice(list(STATEMENT_FORMS.values())), 8)  # type: ignore[return-value]


def _random_buffer(random: Random) -> BufferDecl:
    return BufferDecl(
        random.choice(NAMES),
        random.choice((0, 7, 10, -1)),
        random.choice(list(Access)),
        random.choice(list(DType)),
        random.choice((0, 1, 4096)),
        random.random() < 0.4,
        random.random() < 0.2,
        random.choice((None, None, (0, 0), (4, 64))),
        tuple((random.choice(STRINGS + NAMES), random.choice(STRINGS)) for _ in range(random.choice((0, 0, 1, 3)))),
    )


def random_program(seed: int) -> Program:
    random = Random(seed)
    return Program.new(
        [_random_buffer(random) for _ in range(random.randrange(4))],
        [random.choice((0, 1, 64)) for _ in range(random.randrange(1, 4))],
        random_body(random, random.randrange(12)),
        name=random.choice(NAMES),
        subgroup_size=random.choice((32, 32, 8, 0)),
    )


assert all(is_identifier(name) for name in NAMES)
