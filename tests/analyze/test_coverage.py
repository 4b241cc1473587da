"""Outputs that a launch writes from end to end are told from those that it does not."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from cpu_support import backend
from vyre import reference
from vyre.analyze.coverage import outputs_written_whole
from vyre.driver import Step
from vyre.driver.config import DispatchConfig
from vyre.ir import parse
from vyre.ir.launch import decide_launch


def covered(body: str, sizes: str = "(workgroup 8)", grid: tuple[int, ...] | None = (8,), count: int = 64) -> set[str]:
    text = f"program p{sizes} {{\n buffer 0 a: u32[64] read\n buffer 1 out: u32[{count}] output\n{body}\n}}"
    program = parse(text)
    return set(outputs_written_whole(program, decide_launch(program, {"a": 64}, grid=grid)))


@pytest.mark.parametrize(
    "body",
    [
        "out[gid.x] = 1",
        "let i = gid.x\n let j = i + 0\n out[j] = a[i]",
        "out[wg.x * 8 + lid.x] = 1",
        "out[wg.x + lid.x * 8] = 1",
        "out[(wg.x << 3) + lid.x] = 1",
        "out[(wg.x << 35) + lid.x] = 1",
        "out[lid.x + 8 * wg.x] = 1\n out[5] = 2",
        "block { out[gid.x] = 1 }",
        "if a[gid.x] == 1 { out[3] = 7 }\n out[gid.x] = 1",
        "if gid.x < len(out) { out[gid.x] = 1 }",
        "let i = gid.x\n if len(a) > i { let j = i\n out[j] = 1 } else { out[0] = 2 }",
        "if gid.x < 64 { if gid.x < 99 { out[gid.x] = 1 } }",
        "if gid.x >= len(out) { return }\n out[gid.x] = 1",
        "block { if 64 <= gid.x { return } }\n if a[3] == 1 { out[1] = 1 }\n out[gid.x] = 1",
        "out[gid.x] = 1\n if gid.x >= 3 { return }",
    ],
)
def test_written_whole(body: str) -> None:
    assert covered(body) == {"out"}


@pytest.mark.parametrize(
    "body",
    [
        "out[gid.x + 1] = 1",
        "out[gid.x * 2] = 1",
        "out[gid.x << 1] = 1",
        "out[(wg.x << lid.x) + lid.x] = 1",
        "out[lid.x] = 1",
        "out[gid.x + wg.x] = 1",
        "if a[gid.x] == 1 { out[gid.x] = 1 }",
        "if a[gid.x] == 1 { return }\n out[gid.x] = 1",
        "out[gid.x] = out[gid.x] + 1",
        "out[gid.x] = 1\n let v = out[63 - gid.x]",
        "let old = atomic_add(out, 3, 1)\n out[gid.x] = 1",
        "let i = gid.x\n i = a[i]\n out[i] = 1",
        "for k in 0 .. 1 { out[gid.x] = 1 }",
        "if gid.x < 63 { out[gid.x] = 1 }",
        "if gid.x < a[0] { out[gid.x] = 1 }",
        "if gid.x + 1 < len(out) { out[gid.x] = 1 }",
        "if wg.x < len(out) { if lid.x < 7 { out[gid.x] = 1 } }",
        "if gid.x <= 64 { out[gid.x] = 1 }",
        "if gid.x < len(out) { out[0] = 1 } else { out[gid.x] = 1 }",
        "let i = gid.x\n i = 5\n if i < len(out) { out[gid.x] = 1 }",
        "if gid.x > len(out) { out[gid.x] = 1 }",
        "if gid.x >= 63 { return }\n out[gid.x] = 1",
        "if gid.x >= len(out) { return } else { out[3] = 1 }\n out[gid.x] = 1",
        "block { if gid.x >= 8 { return } }\n out[gid.x] = 1",
        "if gid.x < 70 { if gid.x >= 8 { return } }\n out[gid.x] = 1",
        "if gid.x < 70 { if a[gid.x] == 1 { return }\n out[gid.x] = 1 }",
        "if gid.x >= len(out) { out[0] = 1\n return }\n out[gid.x] = 1",
        "if gid.x < len(out) { return }\n out[gid.x] = 1",
        "for k in 0 .. 9 { if gid.x >= 64 { return } }\n out[gid.x] = 1",
        "block { let i = gid.x * 2\n if i >= 64 { return } }\n block { let i = gid.x\n out[i] = 1 }",
        "block { let i = gid.x }\n block { let i = a[gid.x]\n out[i] = 1 }",
    ],
)
def test_not_written_whole(body: str) -> None:
    assert covered(body) == set()


INDICES = ("gid.x", "i", "j", "wg.x * 8 + lid.x", "gid.x * 2", "lid.x", "gid.x + 1")
LIMITS = ("64", "63", "70", "len(out)", "a[0]")


def random_body(choose: Random, depth: int = 0) -> str:
    index, limit = choose.choice(INDICES), choose.choice(LIMITS)
    forms = [f"out[{index}] = 1", "out[gid.x] = 1", f"if {index} >= {limit} {{ return }}", "j = gid.x"]
    if depth < 3:
        inner = random_body(choose, depth + 1)
        forms += [f"if {head} {{\n{inner}\n}}" for head in (f"{index} < {limit}", f"{limit} > {index}")]
        forms += [f"block {{\n{inner}\n}}", f"for k{depth} in 0 .. 2 {{\n{inner}\n}}"]
    return "\n".join(choose.sample(forms, 2))


def test_what_is_said_to_be_written_whole_is() -> None:
    choose, claimed = Random(7), 0
    for _ in range(1000):
        first = choose.choice(INDICES[:1] + INDICES[3:])
        grid = choose.choice((7, 8, 9))
        text = f"buffer 0 a: u32[64] read\n buffer 1 out: u32[64] output\n let i = {first}\n let j = gid.x"
        program = parse(f"program p(workgroup 8) {{\n{text}\n{random_body(choose)}\n}}")
        if outputs_written_whole(program, decide_launch(program, {"a": 64}, grid=(grid,))):
            claimed += 1
            result = reference.run(program, {"a": np.full(64, 60, np.uint32)}, grid=(grid, 1, 1))
            assert set(result.output_bytes("out")[::4]) == {1}, str(program)
    assert claimed > 100


def test_a_grid_that_is_too_small_leaves_a_rest() -> None:
    assert covered("out[gid.x] = 1", grid=(7,)) == set()
    assert covered("out[gid.x] = 1", grid=(9,)) == {"out"}


def test_rows_have_to_be_as_long_as_the_grid_is_wide() -> None:
    body = "out[gid.y * 8 + gid.x] = 1"
    assert covered(body, "(workgroup 4, 4)", (2, 2)) == {"out"}
    assert covered(body, "(workgroup 4, 4)", (1, 4)) == set()
    assert covered("out[gid.x * 8 + gid.y] = 1", "(workgroup 4, 4)", (2, 2)) == {"out"}


@pytest.mark.parametrize("body", ["out[gid.x] = a[gid.x]", "if a[gid.x] > 30 { out[gid.x] = a[gid.x] }"])
def test_what_was_in_the_memory_before_does_not_show(body: str) -> None:
    """A resident output starts at zero, whether it was cleared or is written whole; passes are counted as ever."""
    text = f"program p(workgroup 8) {{\n buffer 0 a: u32[64] read\n buffer 1 out: u32[64] output\n{body}\n}}"
    program, data, on = parse(text), np.arange(64, dtype=np.uint32), backend(16)
    config = DispatchConfig(fixpoint_iterations=5)
    given = on.dispatch_timed(program, [data], config)
    assert given.passes == 2
    expected = bytes(given.outputs[0])
    with on.allocate(256) as a, on.allocate(256) as out:
        on.upload(a, data)
        for run in (
            lambda: on.dispatch_resident(program, [a, out]),
            lambda: on.dispatch_resident(program, [a, out], config),
            on.prepare_sequence([Step(program, [a, out])]).run,
        ):
            on.fill(out, 255)
            result = run()
            assert bytes(on.download(out)) == expected
            assert getattr(result, "passes", None) in (0, 1, 2)
        on.fill(out, 255)
        assert on.dispatch_resident(program, [a, out], config).passes == given.passes
