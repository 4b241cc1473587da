"""Versions of buffers: who may have changed what, between the barriers that everybody passes once."""

from __future__ import annotations

import numpy as np
import pytest

from vyre.analyze.versions import MemoryVersions
from vyre.backends.reference import ReferenceBackend
from vyre.driver import routes
from vyre.ir import nodes as n
from vyre.ir import parse, walk
from vyre.ir.launch import decide_launch
from vyre.ir.program import Program
from vyre.lower import plan_grid_sync


def program(body: str) -> Program:
    return parse(
        "program p(workgroup 4) {\n  buffer 0 a: u32[8] readwrite\n  buffer 1 b: u32[8] readwrite\n"
        f"  buffer 2 tile: u32[4] workgroup\n{body}\n}}"
    )


def versions_of(body: str, buffer: str = "a") -> list[tuple[int | None, bool]]:
    """The version, and whether it is final, at each let, in order."""
    source = program(body)
    versions = MemoryVersions(source)
    lets = [k for k, s in enumerate(walk.statements(source.entry)) if isinstance(s, n.Let)]
    return [(versions.version(buffer, k), versions.is_final(buffer, k)) for k in lets]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("let x = a[0]", [(0, True)]),
        ("let x = a[0]; b[0] = x", [(0, True)]),
        ("let x = a[0]; a[gid.x] = 1", [(None, False)]),
        ("a[gid.x] = 1; barrier; let x = a[0]", [(None, False)]),
        ("a[gid.x] = 1; grid_sync; let x = a[0]", [(1, True)]),
        ("let x = a[0]; grid_sync; a[gid.x] = 1; grid_sync; let y = a[0]", [(0, False), (1, True)]),
        ("block { a[gid.x] = 1; grid_sync }; let x = a[0]", [(1, True)]),
        ("if len(a) > 2 { a[gid.x] = 1; grid_sync }; let x = a[0]", [(None, False)]),
        ("for k in 0 .. 2 { let x = a[0]; grid_sync; a[gid.x] = 1; grid_sync }; grid_sync; let y = a[0]",
         [(None, False), (1, True)]),
        ("let o = atomic_add(a, 0, 1); grid_sync; let x = a[0]", [(None, False), (1, True)]),
        ('async_load(b, a, 0, 4, "t"); grid_sync; async_wait("t"); let x = a[0]; grid_sync; let y = a[0]',
         [(None, False), (2, True)]),
        ('let x = a[0]; resume("t"); let y = a[0]', [(None, False), (1, True)]),
        ('all_reduce(add, a, "world"); let x = a[0]', [(1, True)]),
    ],
)  # fmt: skip
def test_a_buffer_has_a_version_while_nobody_may_write_it(body: str, expected: list[tuple[int | None, bool]]) -> None:
    assert versions_of(body) == expected


def test_workgroup_memory_that_is_written_has_no_version() -> None:
    body = "let x = tile[0]; tile[lid.x] = 1; grid_sync; let y = tile[0]"
    assert versions_of(body, "tile") == [(None, False), (None, False)]
    assert versions_of("let x = tile[0]; grid_sync; let y = tile[0]", "tile") == [(0, True), (0, True)]


def test_what_nobody_writes_any_more_is_loaded_again_rather_than_carried() -> None:
    first = "a[gid.x] = gid.x * 3; grid_sync; let x = a[gid.x + 1]; grid_sync; b[gid.x] = x"
    settled, changed = program(first), program(first + "; a[gid.x] = 0")
    carried = {}
    for name, source in (("settled", settled), ("changed", changed)):
        launch = decide_launch(source, {"a": 8, "b": 8})
        carried[name] = sum(state.bytes for state in plan_grid_sync(source, launch).state)
    assert carried["settled"] < carried["changed"]
    zeros = np.zeros(8, np.uint32)
    for source in (settled, changed):
        native, host = (
            [bytes(view) for view in routes.dispatch(ReferenceBackend(), source, [zeros, zeros], route=route)]
            for route in ("native", "host")
        )
        assert native == host
        assert np.frombuffer(host[1], np.uint32).tolist() == [3, 6, 9, 12, 15, 18, 21, 0]
