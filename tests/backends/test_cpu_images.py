"""Programs that are ready to run without being there do what they do when they are."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from vyre.backends.cpu import CpuBackend
from vyre.backends.cpu.images import Image
from vyre.driver import Step
from vyre.driver.cache import DiskCache
from vyre.driver.config import DispatchConfig
from vyre.driver.resident import allocated
from vyre.errors import BadInputs, UnsupportedFeature
from vyre.ir import parse
from vyre.ir.program import Program
from vyre.optimizer.switches import Optimization

AS_IT_IS = DispatchConfig(optimize=Optimization(program=False, code=False))
SUM = """program sum(workgroup 4) {
  buffer 0 x: u32[] read
  buffer 1 total: u32[1] readwrite
  buffer 2 y: u32[] readwrite
  buffer 0 tile: u32[4] workgroup
  let mine = x[gid.x] + gid.x
  tile[lid.x] = mine
  barrier
  for round in 0 .. 3 {
    let old = atomic_add(total, 0, tile[(lid.x + round) & 3])
    grid_sync
    mine = mine * 3 + total[0]
    grid_sync
  }
  y[gid.x] = mine
}"""
SCALE = """program scale(workgroup 64) { buffer 0 y: u32[] readwrite; buffer 1 total: u32[1] read
  if gid.x < len(y) { y[gid.x] = y[gid.x] ^ total[0] } }"""


def backend(tmp_path: Path, **options: int) -> CpuBackend:
    return CpuBackend(threads=2, cache=DiskCache(tmp_path), **options)


def programs() -> tuple[Sequence[Program], bytes]:
    return [parse(SUM), parse(SCALE)], b"a note"


def nobody() -> tuple[Sequence[Program], bytes]:
    raise AssertionError("what is kept was made again")


def run(on: CpuBackend, groups: int, image: Image | None = None, length: int | None = None) -> list[bytes]:
    x = np.arange(4 * groups if length is None else length, dtype=np.uint32) * 7
    with allocated(on, [x.nbytes, 4, x.nbytes]) as (given, total, y):
        on.upload_many([(given, 0, x)], fills=[(total, 0, 4, 0), (y, 0, x.nbytes, 1)])
        if image is not None:
            image.run([("sum", groups, [given, total, y]), ("scale", -(-4 * groups // 64), [y, total])])
        else:
            whole, scale = programs()[0]
            steps = [Step(whole, [given, total, y], (groups,)), Step(scale, [y, total], (-(-4 * groups // 64),))]
            on.run_sequence(steps)
        return [bytes(view) for view in on.download_many([total, y])]


@pytest.mark.parametrize("width", [1, 4, 16])
def test_an_image_gives_the_same_bytes_for_any_grid(width: int, tmp_path: Path) -> None:
    on = backend(tmp_path, width=width)
    image = on.device.load_image(b"test", programs)
    for groups in (1, 2, 3, 40, 2):
        assert run(on, groups, image) == run(on, groups), groups


def test_the_same_steps_run_again_on_memory_of_other_lengths_and_in_other_roles(tmp_path: Path) -> None:
    on = backend(tmp_path)
    image = on.device.load_image(b"test", programs)
    for length in (12, 5, 64, 1):
        assert run(on, 3, image, length) == run(on, 3, None, length), length
    with allocated(on, [16, 16]) as (one, other):
        on.upload_many([], fills=[(one, 0, 16, 1), (other, 0, 16, 2)])
        for y, total in ((one, other), (other, one)):
            image.run([("scale", 1, [y, total])])
        assert bytes(on.download(one)) == bytes([3] * 16)
        assert bytes(on.download(other)) == bytes([1] * 16)


def test_threads_run_the_same_steps_at_once(tmp_path: Path) -> None:
    on = backend(tmp_path)
    image = on.device.load_image(b"test", programs)
    lengths = [5 + k % 7 for k in range(200)]
    wanted = {length: run(on, 3, None, length) for length in set(lengths)}
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda length: run(on, 3, image, length), lengths))
    assert found == [wanted[length] for length in lengths]


def test_an_image_is_made_once_and_again_if_it_is_damaged(tmp_path: Path) -> None:
    on = backend(tmp_path)
    wanted = run(on, 3, on.device.load_image(b"test", programs))
    image = backend(tmp_path).device.load_image(b"test", nobody)
    assert image.notes == b"a note"
    assert [(header.name, header.entry) for header in image.headers] == [("sum", ()), ("scale", ())]
    for path in tmp_path.rglob("*.bin"):
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    again = backend(tmp_path)
    assert run(again, 3, again.device.load_image(b"test", programs)) == wanted
    with pytest.raises(AssertionError, match="made again"):
        backend(tmp_path).device.load_image(b"another", nobody)


def test_buffers_are_checked(tmp_path: Path) -> None:
    on = backend(tmp_path)
    image = on.device.load_image(b"test", programs)
    with allocated(on, [16, 2]) as (y, short), pytest.raises(BadInputs, match="'total' needs 4 bytes"):
        image.run([("scale", 1, [y, short])])
    with pytest.raises(BadInputs, match="has 2 host buffers and was given 0"):
        image.run([("scale", 1, [])])
    with allocated(on, [16, 4]) as (y, total):
        pass
    with pytest.raises(BadInputs, match="freed"):
        image.run([("scale", 1, [y, total])])


@pytest.mark.parametrize(
    "text",
    [
        "program p(workgroup 1) { buffer 0 y: u32[1] output; y[0] = 1 }",
        'program p(workgroup 1) { buffer 0 y: u32[1] readwrite; trap(0, "t"); resume("t") }',
        """program p(workgroup 1) { buffer 0 x: u32[] readwrite; buffer 1 y: u32[] readwrite
             async_load(x, y, 0, 4 * len(y), "t"); x[0] = 1; async_wait("t") }""",
    ],
)
def test_what_has_a_start_of_its_own_or_needs_the_host_has_no_image(text: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedFeature, match="an image of a program"):
        backend(tmp_path).device.load_image(b"refused", lambda: ([parse(text)], b""))
