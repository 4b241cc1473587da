"""The text of kernels is for people too: names are kept, nothing nests deep.

``VYRE_UPDATE_SNAPSHOTS=1`` writes the snapshots anew.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from vyre.cli.commands import app
from vyre.emit.wgsl import emit_wgsl
from vyre.emit.wgsl.text import RESERVED
from vyre.ir import build as b
from vyre.ir import nodes as n
from vyre.ir import parse
from vyre.ir.buffers import BufferDecl
from vyre.ir.names import is_identifier
from vyre.ir.program import Program
from vyre.lower import cut_program, split_on_grid_sync
from vyre.semantics.types import DType
from webgpu_support import backend

SNAPSHOTS = Path(__file__).parent / "wgsl"
EXAMPLES = Path(__file__).parents[2] / "examples"

MEETING = """
program meeting(workgroup 8) {
  buffer 0 data: f16[] read
  buffer 1 votes: u32[] output
  buffer 2 bytes: u8[] output
  if gid.x >= len(data) { return }
  for pass in 0 .. 3 {
    if data[gid.x] > 0.5f16 {
      votes[gid.x] = votes[gid.x] + subgroup_ballot(data[pass] < data[gid.x])
      if pass == 1 { continue }
      bytes[gid.x] = u8(pass)
    }
  }
}
"""


def texts() -> dict[str, str]:
    saxpy, total = (parse((EXAMPLES / f"{name}.vyre").read_text()) for name in ("saxpy", "sum"))
    return {
        "saxpy": emit_wgsl(saxpy).text,
        "saxpy_folded": emit_wgsl(saxpy, folded=True).text,
        "sum": emit_wgsl(total).text,
        "sum_watched": emit_wgsl(total, watches_loops=True).text,
        "meeting": emit_wgsl(parse(MEETING)).text,
        "meeting_native": emit_wgsl(parse(MEETING).with_subgroup_size(8), native_subgroups=True).text,
    }


@pytest.mark.parametrize("name", texts())
def test_snapshot(name: str) -> None:
    path, text = SNAPSHOTS / f"{name}.wgsl", texts()[name]
    if os.environ.get("VYRE_UPDATE_SNAPSHOTS") == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text


def test_emission_is_the_same_every_time_and_does_not_touch_the_program() -> None:
    program = parse(MEETING)
    before = program.fingerprint()
    assert emit_wgsl(program).text == emit_wgsl(parse(MEETING)).text
    assert program.fingerprint() == before


LOOPING = """
program looping(workgroup 4) {{
  buffer 0 out: f32[] readwrite
  let x = out[gid.x]
  {loops}
  out[gid.x] = x
}}
"""


@pytest.mark.parametrize(
    ("loops", "watched"),
    [
        ("for i in 0 .. 32768 { x = x + 1.0 }", False),
        ("for i in 0 .. 32769 { x = x + 1.0 }", True),
        ("for i in 0 .. 180 { for j in 0 .. 180 { x = x + 1.0 } }", False),
        ("for i in 0 .. 181 { if x > 3.0 { for j in 0 .. 181 { x = x + 1.0 } } }", True),
        ("for i in 5 .. 2 { x = x + 1.0 }", False),
        ("for i in 0 .. len(out) { x = x + 1.0 }", True),
        ("for i in 0 .. 4 { while x < 3.0 { x = x + 1.0 } }", True),
        ("for i in 0 .. 4 { x = x % out[i] }", True),
    ],
)
def test_loops_are_watched_unless_they_are_sure_to_be_short(loops: str, watched: bool) -> None:
    assert emit_wgsl(parse(LOOPING.format(loops=loops)), watches_loops=True).has_faults is watched
    assert not emit_wgsl(parse(LOOPING.format(loops=loops))).has_faults


def test_deep_expressions_become_flat_statements() -> None:
    value: n.Expr = b.gid()
    for k in range(600):
        value = value * 3 + k if k % 2 else value ^ k
    program = Program.new([BufferDecl.output("out", 0, DType.U32, 4)], 4, [b.store("out", b.gid(), value)])
    text = emit_wgsl(program).text
    assert max(line.count("(") for line in text.splitlines()) < 8
    assert max(map(len, text.splitlines())) <= 120
    (out,) = backend().dispatch(program, [])
    wanted = []
    for x in range(4):
        for k in range(600):
            x = (x * 3 + k) & 0xFFFFFFFF if k % 2 else x ^ k
        wanted.append(x)
    assert np.frombuffer(out, "<u4").tolist() == wanted


@pytest.mark.parametrize("start", range(0, 240, 60))
def test_names_that_wgsl_keeps_for_itself_can_be_used(start: int) -> None:
    """As buffers and as variables, with the names that emitted functions have inside."""
    own = {"i", "word", "value", "bits", "at", "launch", "Launch", "main", "gid", "lane", "t", "t_1", "kept", "k", "x"}
    own |= {"load_out", "store_out", "len_out", "faults", "overrun", "hidden_zero", "_", "__a", "add_u64", "on", "old"}
    words = sorted(word for word in {*RESERVED, *own} if is_identifier(word))[start : start + 60]
    total: n.Expr = b.lit(0)
    lets: list[n.Stmt] = []
    for word in words[1:]:
        lets.append(b.let(word, b.gid() + len(lets)))
        total = total + b.var(word)
    if not words:
        return
    buffers = [BufferDecl.read_write(words[0], 0, DType.U8), BufferDecl.output("result", 1, DType.U32, 4)]
    body = [*lets, b.store(words[0], b.gid(), n.Cast(DType.U8, b.load(words[0], b.gid()) + n.Lit(1, DType.U8)))]
    body.append(b.store("result", b.gid(), total))
    outputs = backend().dispatch(Program.new(buffers, 4, body), [np.arange(4, dtype="<u1")])
    count = len(words) - 1
    assert np.frombuffer(outputs[0], "<u1").tolist() == [1, 2, 3, 4]
    assert np.frombuffer(outputs[1], "<u4").tolist() == [count * x + count * (count - 1) // 2 for x in range(4)]


def test_buffers_with_the_names_of_locals() -> None:
    names = ["i", "value", "word", "bits", "shift", "old", "expected", "tried", "at", "count", "size", "start", "to"]
    for name in names:
        text = f"""
        program named(workgroup 2) {{
          buffer 0 {name}: u32[4] readwrite
          buffer 1 small: i8[4] readwrite
          let a = atomic_compare_exchange({name}, gid.x, gid.x, 9)
          let c = atomic_add({name}, 3, 1)
          small[gid.x] = i8({name}[gid.x])
          {name}[2] = 5
        }}
        """
        assert re.search(rf"\b{name}_words\b", emit_wgsl(parse(text)).text)
    outputs = backend().dispatch(parse(text), [np.arange(4, dtype="<u4"), np.zeros(4, "<i1")])
    assert np.frombuffer(outputs[0], "<u4").tolist() == [9, 9, 5, 7]


def test_constants_that_wgsl_would_refuse_to_compute() -> None:
    text = """
    program constants(workgroup 1) {
      buffer 0 ints: i32[8] output
      buffer 1 words: u32[8] output
      buffer 2 floats: f32[10] output
      ints[0] = 2147483647i32 + 1i32
      ints[1] = -2147483648i32 / -1i32
      ints[2] = 7i32 / 0i32
      ints[3] = 7i32 % 0i32
      ints[4] = 1i32 << 33i32
      ints[5] = -2147483648i32
      words[0] = 4294967295 + 1
      words[1] = 5 / 0
      words[2] = 1 << 31 << 1
      words[3] = 4294967295 * 4294967295
      floats[0] = 1.0 / 0.0
      floats[1] = inf - inf
      floats[2] = 3e38 * 10.0
      floats[3] = -0.0 + -0.0
      floats[4] = 1e-45
      floats[5] = 0.0 * nan
      let zero = f32(gid.x) * 0.0
      floats[6] = zero / zero
      floats[7] = (inf * 1.0) - (inf * 1.0)
      floats[8] = select(zero / zero == zero / zero, 1.0, 2.0)
      floats[9] = -(zero - zero)
    }
    """
    ints, words, floats = backend().dispatch(parse(text), [])
    assert np.frombuffer(ints, "<i4").tolist()[:6] == [-(1 << 31), -(1 << 31), 7, 0, 2, -(1 << 31)]
    assert np.frombuffer(words, "<u4").tolist()[:4] == [0, 5, 0, 1]
    assert np.frombuffer(floats, "<u4").tolist() == [
        0x7F800000, 0x7FC00000, 0x7F800000, 0x80000000, 1, 0x7FC00000, 0x7FC00000, 0x7FC00000, 0x40000000, 0x80000000,
    ]  # fmt: skip


def test_the_command_shows_every_kernel_of_a_program() -> None:
    backend()
    shown = CliRunner().invoke(app, ["show", str(EXAMPLES / "reach.vyre"), "--wgsl"])
    assert shown.exit_code == 0
    assert shown.output.count("@compute") == len(cut_program(parse((EXAMPLES / "reach.vyre").read_text())).segments)


def test_segments_of_a_cut_program_are_kernels_of_their_own() -> None:
    text = "program two(workgroup 2) { buffer 0 a: u32[] readwrite\n a[gid.x] = 1\n grid_sync\n a[gid.x] = a[0] + 1 }"
    assert all("fn main" in emit_wgsl(part).text for part in split_on_grid_sync(parse(text)))
