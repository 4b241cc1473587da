"""Grids that are in memory: read and folded on the device, without the host; the same bytes as on the reference."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from backends_for_tests import increment
from vyre.backends.reference import ReferenceBackend
from vyre.driver import Step, Zero
from vyre.driver.backend import Backend
from vyre.driver.config import DispatchConfig
from vyre.errors import BadInputs
from vyre.ir import parse
from webgpu_support import backend

PLACES = """
program places(workgroup {size}) {{
  buffer 0 counts: u32[] read
  buffer 1 out: u32[] readwrite
  indirect_dispatch(counts, 8)
  let at = wg.x + num_wg.x * (wg.y + num_wg.y * wg.z)
  if lid.x + lid.y + lid.z == 0 {{
    out[at] = gid.x * 3 + gid.y * 5 + gid.z * 7 + num_wg.x * 1009 + num_wg.y * 10007 + num_wg.z * 100003
  }}
}}
"""


def words(*values: int) -> np.ndarray:
    return np.array(values, "<u4")


def places(on: Backend, grid: tuple[int, ...], size: str, length: int = 400) -> list[int]:
    with on.allocate(20) as counts, on.allocate(4 * length) as out:
        on.upload_many([(counts, 0, words(9, 9, *grid))], fills=[(out, 0, 4 * length, 0)])
        on.dispatch_resident(parse(PLACES.format(size=size)), [counts, out])
        return np.frombuffer(on.download(out), "<u4").tolist()


def test_any_grid_means_what_it_means_on_the_reference() -> None:
    random = Random(6)
    for size in ("1", "5", "64", "4, 3, 2"):
        for _ in range(5):
            grid = tuple(random.choice((0, 1, 2, 3, 7)) for _ in range(3))
            assert places(backend(), grid, size) == places(ReferenceBackend(), grid, size), (grid, size)


@pytest.mark.parametrize("grid", [(70_000, 1, 1), (65_536, 2, 1), (2, 65_537, 1), (3, 2, 65_600), (65_535, 1, 1)])
def test_grids_beyond_the_limit_of_an_axis_are_folded_on_the_device(grid: tuple[int, int, int]) -> None:
    z, y, x = np.indices(grid[::-1], "<u4")
    launched = grid[0] * 1009 + grid[1] * 10007 + grid[2] * 100003
    found = places(backend(), grid, "1", x.size)
    assert np.array_equal(np.array(found, "<u4"), (x * 3 + y * 5 + z * 7 + np.uint32(launched % (1 << 32))).ravel())


TOO_LARGE = [((1 << 27, 1, 1), "64"), ((1, 1, 1 << 31), "1, 1, 4"), ((65_536,) * 3, "1")]


@pytest.mark.parametrize(("grid", "size"), TOO_LARGE)
def test_a_grid_that_cannot_be_numbered_is_refused(grid: tuple[int, int, int], size: str) -> None:
    with pytest.raises(BadInputs, match="the grid that memory says") as caught:
        places(backend(), grid, size)
    assert str(grid) in str(caught.value)
    assert "Fix:" in str(caught.value)
    assert places(backend(), (2, 1, 1), size)[:3] == places(ReferenceBackend(), (2, 1, 1), size)[:3]


COUNT_DOWN = """
program count_down(workgroup 1) {
  buffer 0 counts: u32[3] readwrite
  if counts[0] > 0 { counts[0] = counts[0] - 1 }
}
"""
TOUCH = """
program touch(workgroup 2) {
  buffer 0 counts: u32[3] read
  buffer 1 out: u32[16] readwrite
  indirect_dispatch(counts, 0)
  out[gid.x] = out[gid.x] + num_wg.x
}
"""


def touched(start: int, passes: int) -> list[int]:
    out = [0] * 16
    for grid in range(start - 1, start - 1 - passes, -1):
        for at in range(2 * max(grid, 0)):
            out[at] += grid
    return out


def test_grids_that_steps_write_need_no_host_between_them() -> None:
    on = backend()
    down, touch = parse(COUNT_DOWN), parse(TOUCH)
    with on.allocate(12) as counts, on.allocate(64) as out:
        steps = [Step(down, [counts], grid_override=(1,)), Step(touch, [counts, out])]
        sequence = on.prepare_sequence(repeat=steps, times=5, reads=[out])
        for start in (8, 8, 3):
            on.upload_many([(counts, 0, words(start, 1, 1))], fills=[(out, 0, 64, 0)])
            before = on.metrics()
            (found,) = sequence.run().outputs
            after = on.metrics()
            assert np.frombuffer(found, "<u4").tolist() == touched(start, 5)
            assert {name: after[name] - before[name] for name in after} == {"submissions": 1, "readbacks": 1}


@pytest.mark.parametrize("start", [1, 2, 5, 8])
def test_a_fixpoint_with_a_grid_in_memory_ends_when_it_should(start: int) -> None:
    found = []
    for on in (backend(), ReferenceBackend()):
        with on.allocate(12) as counts, on.allocate(64) as out, on.allocate(8) as ticks:
            on.upload_many([(counts, 0, words(start, 1, 1)), (ticks, 0, words(0, 0))], fills=[(out, 0, 64, 0)])
            left = "program left(workgroup 1) { buffer 0 c: u32[3] read\n buffer 1 o: u32[1] output\n o[0] = c[0] }"
            with on.allocate(4) as rest:
                steps = [
                    Step(parse(COUNT_DOWN), [counts], grid_override=(1,)),
                    Step(parse(TOUCH), [counts, out]),
                    Step(increment(), [ticks]),
                    Step(parse(left), [counts, rest]),
                ]
                result = on.run_sequence(repeat=steps, times=100, until=Zero(rest), reads=[out, ticks, counts])
            found.append((result.passes, result.converged, list(map(bytes, result.outputs))))
    assert found[0] == found[1]
    assert found[0][0] == start


def test_where_memory_has_its_size_from_the_grid_the_host_reads_it() -> None:
    moved = """
    program moved(workgroup 2) {
      buffer 0 counts: u32[3] read
      buffer 1 a: u32[4] readwrite
      indirect_dispatch(counts, 0)
      async_load(a, a, gid.x * 4, 4, "t")
      async_wait("t")
    }
    """
    sized = """
    program sized(workgroup 2) {
      buffer 0 counts: u32[3] read
      buffer 1 out: u32[] output
      indirect_dispatch(counts, 0)
      out[gid.x] = gid.x + len(out)
    }
    """
    found = []
    for on in (backend(), ReferenceBackend()):
        with on.allocate(12) as counts, on.allocate(16) as data:
            on.upload_many([(counts, 0, words(1, 1, 1)), (data, 0, words(4, 4, 4, 4))])
            for text in (moved, sized):
                on.dispatch_resident(parse(text), [counts, data])
                on.run_sequence([Step(parse(text), [counts, data])])
                found.append(bytes(on.download(data)))
    assert found[:2] == found[2:]


@pytest.mark.parametrize("iterations", [1, 3, 20])
def test_all_passes_of_one_run_share_the_grid_that_was_there(iterations: int) -> None:
    text = """
    program shrink(workgroup 1) {
      buffer 0 counts: u32[3] readwrite
      buffer 1 out: u32[8] readwrite
      indirect_dispatch(counts, 0)
      if gid.x == 0 { counts[0] = 2 }
      if out[gid.x] < 9 { out[gid.x] = out[gid.x] + num_wg.x }
    }
    """
    found = []
    for on in (backend(), ReferenceBackend()):
        with on.allocate(12) as counts, on.allocate(32) as out:
            on.upload_many([(counts, 0, words(5, 1, 1))], fills=[(out, 0, 32, 0)])
            config = DispatchConfig(fixpoint_iterations=iterations)
            result = on.dispatch_resident(parse(text), [counts, out], config)
            found.append((result.passes, bytes(on.download(out))))
    assert found[0] == found[1]


def test_a_buffer_too_short_for_a_grid_is_refused_before_anything_runs() -> None:
    on = backend()
    with on.allocate(16) as counts, on.allocate(4) as out:
        before = on.metrics()
        with pytest.raises(BadInputs, match="bytes 8 to 20 of buffer 'counts'"):
            on.dispatch_resident(parse(PLACES.format(size="1")), [counts, out])
        assert on.metrics() == before
