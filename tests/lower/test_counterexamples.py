"""Programs with grid barriers that are easy to get wrong, by every route and under several schedules (G1 to G17)."""

from __future__ import annotations

import numpy as np
import pytest

from everywhere import ROUTES, backend_for, run_everywhere
from vyre.driver import routes
from vyre.driver.config import DispatchConfig
from vyre.errors import InvalidProgram, TrapRaised
from vyre.ir import parse


def test_a_let_keeps_the_value_from_before_the_barrier() -> None:
    text = """
    program g1(workgroup 2) {
      buffer 0 a: u32[1] readwrite
      buffer 1 out: u32[4] output
      let x = a[0]
      grid_sync
      if gid.x == 0 { a[0] = x + 1 }
      grid_sync
      out[gid.x] = x + 100 * a[0]
    }"""
    assert run_everywhere(text, {"a": [5]})["out"] == [605] * 4


def test_an_atomic_before_the_barrier_runs_once() -> None:
    text = """
    program g2(workgroup 2) {
      buffer 0 c: u32[1] readwrite
      buffer 1 out: u32[6] output
      let ticket = atomic_add(c, 0, 1)
      grid_sync
      out[ticket] = 1
    }"""
    assert run_everywhere(text, {"c": [0]}, grid_override=(3,)) == {"c": [6], "out": [1] * 6}


def test_an_assigned_variable_crosses() -> None:
    text = """
    program g3(workgroup 2) {
      buffer 0 out: u32[4] output
      let acc = 0
      acc = acc + 5 + gid.x
      grid_sync
      out[gid.x] = acc
    }"""
    assert run_everywhere(text)["out"] == [5, 6, 7, 8]


def test_a_variable_assigned_in_one_segment_is_read_two_cuts_later() -> None:
    text = """
    program g4(workgroup 2) {
      buffer 0 out: i64[4] output
      let x = -1i64
      grid_sync
      if gid.x > 1 { x = 5000000000i64 }
      grid_sync
      grid_sync
      out[gid.x] = x
    }"""
    assert run_everywhere(text)["out"] == [-1, -1, 5_000_000_000, 5_000_000_000]


def test_siblings_that_share_a_name_keep_their_own_values() -> None:
    text = """
    program g5(workgroup 2) {
      buffer 0 out: u32[4] output
      buffer 1 other: u32[4] output
      block {
        let t = gid.x + 1
        grid_sync
        out[gid.x] = t
      }
      for k in 0 .. 3 {
        let t = k * 10
        grid_sync
        other[gid.x] = other[gid.x] + t
      }
      block {
        let t = true
        grid_sync
        if t { out[gid.x] = out[gid.x] * 2 }
      }
    }"""
    assert run_everywhere(text) == {"out": [2, 4, 6, 8], "other": [30] * 4}


def test_who_returned_stays_returned() -> None:
    text = """
    program g6(workgroup 4) {
      buffer 0 out: u32[8] output
      buffer 1 n: u32[1] read
      if gid.x >= n[0] { return }
      out[gid.x] = 1
      grid_sync
      out[gid.x] = out[gid.x] + 1
      if gid.x == 2 { return }
      grid_sync
      out[gid.x] = out[gid.x] + 1
    }"""
    assert run_everywhere(text, {"n": [5]})["out"] == [3, 3, 2, 3, 3, 0, 0, 0]


def test_a_loop_is_in_lockstep_on_the_whole_grid() -> None:
    text = """
    program g7(workgroup 2) {
      buffer 0 a: u32[6] readwrite
      buffer 1 b: u32[6] output
      for k in 0 .. 5 {
        a[gid.x] = a[gid.x] + k + 1
        grid_sync
        b[gid.x] = b[gid.x] * 2 + a[(gid.x + 1) % 6]
        grid_sync
      }
    }"""
    a, b = list(range(6)), [0] * 6
    for k in range(5):
        a = [value + k + 1 for value in a]
        b = [b[i] * 2 + a[(i + 1) % 6] for i in range(6)]
    assert run_everywhere(text, {"a": list(range(6))}) == {"a": a, "b": b}


def test_a_condition_that_the_device_writes_runs_to_its_fixpoint() -> None:
    text = """
    program g8(workgroup 2) {
      buffer 0 d: u32[8] readwrite
      buffer 1 changed: u32[1] readwrite
      buffer 2 rounds: u32[1] output
      while changed[0] != 0 {
        let left = select(gid.x > 0, d[gid.x - 1], 99)
        let mine = d[gid.x]
        grid_sync
        if gid.x == 0 { changed[0] = 0; rounds[0] = rounds[0] + 1 }
        grid_sync
        if left + 1 < mine { d[gid.x] = left + 1; changed[0] = 1 }
        grid_sync
      }
    }"""
    result = run_everywhere(text, {"d": [0] + [50] * 7, "changed": [1]})
    assert result == {"d": list(range(8)), "changed": [0], "rounds": [8]}


@pytest.mark.parametrize("route", ROUTES)
def test_a_barrier_for_one_workgroup_is_refused_before_anything_runs(route: routes.Route) -> None:
    text = "program g9(workgroup 2) { buffer 0 a: u32[4] readwrite; a[gid.x] = 7; if wg.x == 0 { grid_sync } }"
    data = np.zeros(4, "<u4")
    with pytest.raises(InvalidProgram) as caught:
        routes.dispatch(backend_for(route), parse(text), [data], route=route)
    assert [found.code for found in caught.value.diagnostics] == ["V068"]
    assert not data.any()


@pytest.mark.parametrize("returning", ["", "if gid.x == 1 { return }"])
def test_workgroup_memory_crosses(returning: str) -> None:
    text = f"""
    program g10(workgroup 4) {{
      buffer 0 tile: u16[7] workgroup
      buffer 1 flags: bool[4] workgroup
      buffer 2 out: u32[8] output
      tile[lid.x] = u16(gid.x + 1)
      flags[lid.x] = lid.x == 2
      {returning}
      barrier
      if lid.x == 0 {{ tile[6] = tile[3] }}
      grid_sync
      out[gid.x] = u32(tile[3 - lid.x]) + 100 * u32(tile[6]) + select(flags[lid.x], 5000, 0)
    }}"""
    expected = [404, 403, 5402, 401, 808, 807, 5806, 805]
    if returning:
        expected[1] = 0
    assert run_everywhere(text)["out"] == expected


def test_bytes_in_workgroup_memory_that_are_no_number_cross_as_they_are() -> None:
    text = """
    program g10_bytes(workgroup 2) {
      buffer 0 raw: u32[2] read
      buffer 1 tile: f32[2] workgroup
      buffer 2 out: u32[2] output
      if lid.x == 0 { copy_bytes(raw, tile, 0, 0, 8) }
      grid_sync
      if lid.x == 0 { copy_bytes(tile, out, 0, 0, 8) }
    }"""
    signalling = [0x7F800001, 0xFFC12345]
    assert run_everywhere(text, {"raw": signalling}, grid_override=(1,))["out"] == signalling


def test_a_read_write_buffer_keeps_what_nobody_wrote() -> None:
    text = """
    program g11(workgroup 1) {
      buffer 0 s: u32[4] readwrite
      buffer 1 out: u32[1] output
      s[0] = 9
      grid_sync
      out[0] = s[1]
    }"""
    assert run_everywhere(text, {"s": [1, 2, 3, 4]}, grid_override=(1,)) == {"s": [9, 2, 3, 4], "out": [2]}


def test_two_segments_write_parts_of_one_write_only_buffer() -> None:
    text = """
    program g12(workgroup 1) {
      buffer 0 out: u32[4] writeonly
      out[0] = 170
      grid_sync
      out[2] = 187
    }"""
    assert run_everywhere(text, grid_override=(1,))["out"] == [170, 0, 187, 0]


def test_segments_that_touch_buffers_of_different_sizes_have_one_grid() -> None:
    text = """
    program g13(workgroup 2) {
      buffer 0 small: u32[2] output
      buffer 1 large: u32[9] output
      small[gid.x] = num_wg.x
      grid_sync
      large[gid.x] = num_wg.x
    }"""
    assert run_everywhere(text) == {"small": [5, 5], "large": [5] * 9}


def test_a_fixpoint_with_a_scratch_buffer_is_the_same_everywhere() -> None:
    text = """
    program g14(workgroup 2) {
      buffer 0 x: u32[4] readwrite
      buffer 1 scratch: u32[4] output
      scratch[gid.x] = scratch[gid.x] + x[gid.x]
      grid_sync
      if gid.x == 0 & x[0] < 9 { x[0] = x[0] + scratch[3] }
    }"""
    assert run_everywhere(text, {"x": [1, 0, 0, 2]}, fixpoint_iterations=3) == {
        "x": [13, 0, 0, 2],
        "scratch": [1 + 3 + 7, 0, 0, 6],
    }


def test_a_byte_range_trims_only_what_is_delivered() -> None:
    text = """
    program g15(workgroup 4) {
      buffer 0 a: u32[4] output bytes 4..12
      buffer 1 out: u32[4] output
      a[gid.x] = gid.x + 1
      grid_sync
      out[gid.x] = a[3 - gid.x]
    }"""
    assert run_everywhere(text) == {"a": [2, 3], "out": [4, 3, 2, 1]}


def test_buffers_are_bound_however_they_are_used() -> None:
    text = """
    program g16(workgroup 2) {
      buffer 0 counts: u32[4] read
      buffer 1 sized: u8[] read
      buffer 2 source: u32[4] read
      buffer 3 place: u32[1] read
      buffer 4 out: u32[4] output
      buffer 5 copy: u32[4] output
      indirect_dispatch(counts, 4)
      out[gid.x] = 1
      grid_sync
      out[gid.x] = out[gid.x] + len(sized)
      grid_sync
      if gid.x == 0 {
        async_load(source, copy, 4, 8, "t")
        async_wait("t")
      }
      grid_sync
      if gid.x == 1 { trap(place[0], "ask") }
      resume("ask")
      out[gid.x] = out[gid.x] + 1
    }"""
    asked = []
    result = run_everywhere(
        text,
        {"counts": [7, 2, 1, 1], "sized": [0] * 30, "source": [1, 2, 3, 4], "place": [77]},
        handlers={"ask": lambda requests, _: asked.append([(r.invocation, r.address) for r in requests])},
    )
    assert result == {"out": [32] * 4, "copy": [2, 3, 0, 0]}
    assert set(map(tuple, asked)) == {((1, 77),)}


def test_a_transfer_that_is_pending_over_a_barrier_completes_with_what_it_captured() -> None:
    text = """
    program g17(workgroup 2) {
      buffer 0 a: u32[4] readwrite
      buffer 1 fixed: u16[4] read
      buffer 2 out: u32[4] output
      buffer 3 other: u16[3] output
      async_load(a, out, 4, a[3], "x")
      async_store(fixed, other, 2, 100, "y")
      grid_sync
      a[gid.x] = 0
      grid_sync
      async_wait("y")
      async_wait("x")
    }"""
    inputs = {"a": [1, 2, 3, 10], "fixed": [7, 8, 9, 10]}
    # Ten bytes from byte 4: two elements and half of the third.
    assert run_everywhere(text, inputs) == {"a": [0] * 4, "out": [2, 3, 10, 0], "other": [0, 7, 8]}


def test_one_wait_completes_whichever_transfer_was_issued() -> None:
    text = """
    program g17_choice(workgroup 1) {
      buffer 0 a: u32[2] readwrite
      buffer 1 b: u32[2] read
      buffer 2 out: u32[4] output
      if gid.x == 0 { async_store(a, out, 0, 8, "t") } else { async_store(b, out, 8, 4, "t") }
      grid_sync
      a[gid.x] = 9
      async_wait("t")
    }"""
    assert run_everywhere(text, {"a": [1, 2], "b": [3, 4]}, grid_override=(2,)) == {"a": [9, 9], "out": [1, 2, 3, 0]}


def test_breaks_and_continues_behind_a_barrier_leave_the_pass_that_they_are_in() -> None:
    text = """
    program jumps(workgroup 2) {
      buffer 0 out: u32[] output
      buffer 1 limit: u32[2] read
      let acc = 0
      for i in 0 .. 4 {
        let base = i * 100
        for j in 0 .. 6 {
          grid_sync
          acc = acc + 1
          if j == limit[0] { continue }
          acc = acc + base
          if j == limit[1] { break }
          grid_sync
          acc = acc + 10
        }
        if i == 2 { continue }
        grid_sync
        acc = acc + 1000
      }
      out[gid.x] = acc
    }"""
    expected = 0
    for i in range(4):
        for j in range(6):
            expected += 1
            if j == 1:
                continue
            expected += i * 100
            if j == 3:
                break
            expected += 10
        if i == 2:
            continue
        expected += 1000
    assert run_everywhere(text, {"limit": [1, 3]}, dispatch_elements=4)["out"] == [expected] * 4


def test_a_loop_up_to_the_largest_number_ends() -> None:
    text = """
    program last_passes(workgroup 2) {
      buffer 0 out: u32[2] output
      for k in 4294967293 .. 4294967295 {
        grid_sync
        out[gid.x] = out[gid.x] + 1
      }
      for k in 5 .. 3 {
        grid_sync
        out[gid.x] = 99
      }
    }"""
    assert run_everywhere(text)["out"] == [2, 2]


def test_loop_bounds_are_evaluated_once_and_in_order() -> None:
    text = """
    program bounds(workgroup 1) {
      buffer 0 c: u32[1] readwrite
      buffer 1 out: u32[1] output
      let stop = 3
      for k in c[0] .. stop {
        stop = 100
        grid_sync
        c[0] = c[0] + 1
        out[0] = out[0] * 10 + k
      }
    }"""
    assert run_everywhere(text, {"c": [0]}, grid_override=(1,)) == {"c": [3], "out": [12]}


def test_every_type_crosses() -> None:
    types = {
        "bool": ("gid.x == 1", [0, 1]), "u8": ("u8(gid.x + 255)", [255, 0]), "i8": ("i8(gid.x) + -128i8", [-128, -127]),
        "u16": ("u16(gid.x) + 65535u16", [65535, 0]), "i16": ("i16(gid.x) + -32768i16", [-32768, -32767]),
        "u32": ("gid.x - 1", [2**32 - 1, 0]), "i32": ("i32(gid.x) - 1i32", [-1, 0]),
        "u64": ("u64(gid.x) + 81985529216486895u64", [81985529216486895, 81985529216486896]),
        "i64": ("i64(gid.x) - 81985529216486895i64", [-81985529216486895, -81985529216486894]),
        "f16": ("f16(gid.x) - 1.5f16", [-1.5, -0.5]), "f32": ("f32(gid.x) - 0.1", [-0.1, 0.9]),
        "f64": ("f64(gid.x) - 0.1f64", [-0.1, 0.9]),
    }  # fmt: skip
    for name, (value, expected) in types.items():
        text = f"""
        program cross_{name}(workgroup 2) {{
          buffer 0 out: {name}[2] output
          let x = {value}
          x = {value}
          grid_sync
          out[gid.x] = x
        }}"""
        got = run_everywhere(text)["out"]
        assert got == pytest.approx(expected) if name in ("f32", "f64") else got == expected, name


def test_uniform_values_cross_so_that_later_barriers_stay_legal() -> None:
    text = """
    program uniform(workgroup 2) {
      buffer 0 n: u32[1] read
      buffer 1 s: u32[4] readwrite
      buffer 2 out: u32[4] output
      let rounds = n[0]
      rounds = rounds + 1
      let mine = s[wg.x]
      mine = mine + wg.x
      grid_sync
      while rounds > 0 {
        rounds = rounds - 1
        if mine == 3 { barrier }
        out[gid.x] = out[gid.x] + mine
        grid_sync
      }
      if rounds == 0 { barrier }
    }"""
    assert run_everywhere(text, {"n": [2], "s": [3, 2, 0, 0]})["out"] == [9, 9, 9, 9]


TRAPS = """
program traps(workgroup 2) {
  buffer 0 box: u32[8] readwrite
  buffer 1 out: u32[8] output
  buffer 2 tile: u32[2] workgroup
  let mine = gid.x * 10
  tile[lid.x] = gid.x
  for k in 0 .. 3 {
    if gid.x % 3 == k {
      mine = mine + 1
      trap(mine, "page")
    }
    let fresh = 5
    grid_sync
    mine = mine + 100
    resume("page")
    out[gid.x] = out[gid.x] + box[gid.x] + mine + fresh + tile[1 - lid.x]
    grid_sync
  }
}
"""


def test_who_trapped_goes_on_behind_the_resume_with_what_it_had() -> None:
    calls: list[list[tuple[int, int]]] = []

    def answer(requests, buffers) -> None:  # type: ignore[no-untyped-def]
        calls.append([(request.invocation, request.address) for request in requests])
        for request in requests:
            buffers["box"][request.invocation] += request.address

    result = run_everywhere(TRAPS, {"box": [0] * 8}, handlers={"page": answer})
    mine, box, out = [i * 10 for i in range(8)], [0] * 8, [0] * 8
    expected_calls = []
    for k in range(3):
        trapped = [i for i in range(8) if i % 3 == k]
        for i in range(8):
            mine[i] += 1 if i in trapped else 100
            box[i] += mine[i] if i in trapped else 0
            # Who trapped passed the declaration over: it is zero there.
            out[i] += box[i] + mine[i] + (0 if i in trapped else 5) + (i ^ 1)
        expected_calls.append([(i, mine[i]) for i in trapped])
    assert result == {"box": box, "out": out}
    assert calls == expected_calls * (len(calls) // 3)


def test_all_may_wait_for_a_resume() -> None:
    text = """
    program all_wait(workgroup 2) {
      buffer 0 out: u32[4] output
      buffer 1 tile: u32[2] workgroup
      tile[lid.x] = gid.x + 1
      let rounds = 2
      while rounds > 0 {
        rounds = rounds - 1
        if gid.x == 0 { return }
        trap(gid.x, "wait")
        resume("wait")
        out[gid.x] = out[gid.x] + 10 * tile[1 - lid.x] + rounds
      }
    }"""
    seen: list[int] = []
    result = run_everywhere(text, handlers={"wait": lambda requests, _: seen.append(len(requests))})
    assert result["out"] == [0, 21, 81, 61]
    assert set(seen) == {3}


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    ("body", "tag", "invocation"),
    [
        ('if gid.x > 1 { trap(gid.x + 5, "none") }; grid_sync; if gid.x == 0 { trap(0, "late") }', "none", 2),
        ('if gid.x == 3 { trap(8, "other") }; resume("other")', "other", 3),
        ('if gid.x == 3 { trap(8, "page") }; grid_sync; a[gid.x] = 1', "page", 3),
    ],
)
def test_a_request_that_nobody_handles_ends_the_run(route: routes.Route, body: str, tag: str, invocation: int) -> None:
    program = parse(f"program lost(workgroup 2) {{ buffer 0 a: u32[4] readwrite; {body} }}")
    config = DispatchConfig(handlers={"page": lambda _requests, _buffers: None})
    data = np.arange(4, dtype="<u4")
    with pytest.raises(TrapRaised) as caught:
        routes.dispatch(backend_for(route), program, [data], config, route=route)
    assert (caught.value.tag, caught.value.invocation) == (tag, invocation)
    assert data.tolist() == [0, 1, 2, 3]


def test_collectives_of_one_rank_copy_or_do_nothing() -> None:
    text = """
    program ranks(workgroup 2) {
      buffer 0 a: u32[4] readwrite
      buffer 1 longer: u32[6] output
      buffer 2 shorter: u32[3] output
      if gid.x == 3 { return }
      a[gid.x] = a[gid.x] + 1
      all_reduce(add, a, "world")
      broadcast(a, 0, "world")
      all_gather(a, longer, "world")
      a[gid.x] = 0
      reduce_scatter(max, longer, shorter, "world")
      longer[gid.x] = longer[gid.x] + shorter[2 - gid.x]
    }"""
    assert run_everywhere(text, {"a": [1, 2, 3, 4]}) == {
        "a": [0, 0, 0, 4],
        "longer": [6, 6, 6, 4, 0, 0],
        "shorter": [2, 3, 4],
    }


def test_nothing_is_gathered_where_nobody_comes() -> None:
    text = """
    program nobody(workgroup 2) {
      buffer 0 a: u32[2] readwrite
      buffer 1 b: u32[2] output
      if gid.x < 100 { return }
      all_gather(a, b, "world")
    }"""
    assert run_everywhere(text, {"a": [1, 2]})["b"] == [0, 0]


def test_three_axes_have_rows_of_their_own() -> None:
    text = """
    program axes(workgroup 2, 3, 2) {
      buffer 0 out: u32[144] output
      let x = gid.x + 10 * gid.y + 100 * gid.z
      x = x * 2
      let group = wg.x + wg.y + wg.z
      group = group + 1
      grid_sync
      out[gid.x + 4 * gid.y + 36 * gid.z] = x + 1000 * group
    }"""
    result = run_everywhere(text, grid_override=(2, 3, 2))["out"]
    for z in range(4):
        for y in range(9):
            for x in range(4):
                group = x // 2 + y // 3 + z // 2 + 1
                assert result[x + 4 * y + 36 * z] == 2 * (x + 10 * y + 100 * z) + 1000 * group


def test_an_empty_grid_runs_nothing() -> None:
    text = """
    program empty(workgroup 2) {
      buffer 0 a: u32[] readwrite
      let x = gid.x
      x = x + 1
      while len(a) == 0 { grid_sync; a[gid.x] = x }
    }"""
    assert run_everywhere(text, {"a": []})["a"] == []


def test_the_chain_of_two_words_is_right_on_any_grid() -> None:
    text = """
    program chain(workgroup 2) {
      buffer 0 state: u32[2] readwrite
      state[0] = 40
      grid_sync
      state[1] = state[0] + 1
      grid_sync
      state[0] = state[1] + 1
    }"""
    for groups in (1, 2, 5):
        assert run_everywhere(text, {"state": [0, 0]}, grid_override=(groups,))["state"] == [42, 41]
