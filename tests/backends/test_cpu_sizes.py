"""Accesses on two and three axes: checked once in a launch, and whatever `shapes` says, the reference's bytes."""

from __future__ import annotations

import sys
from random import Random

import numpy as np
import pytest

from cpu_support import backend, call, compare, difference, guarded, meaning, outcome
from vyre.analyze.ranges import proofs_of
from vyre.conform.case import Case
from vyre.driver.config import DispatchConfig
from vyre.driver.optimizing import optimize
from vyre.ir import Program, parse
from vyre.ir import nodes as n
from vyre.ir.printer import short_text
from vyre.semantics.types import DType

WIDTHS = (1, 4, 8, 16)
HEAD = """
program rows(workgroup {size}) {{
  buffer 0 a: {dtype}[] read
  buffer 1 out: {dtype}[] readwrite
  buffer 2 shapes: u32[4] uniform
  buffer 3 s: u32[1] workgroup
  buffer 4 z: u32[2] workgroup
  let h = shapes[0]
  let w = shapes[1]
  let d = shapes[2]
  let j = gid.x
  let i = gid.y
  let k = gid.z
  {body}
}}"""
STENCIL = """
  if i >= 1 & j >= 1 & i + 1 < h & j + 1 < w {
    out[i * w + j] = a[(i - 1) * w + j] + a[(i + 1) * w + j] * 3 + a[i * w + (j - 1)] * 5 + a[i * w + (j + 1)] * 7
  }"""
FLAT = "if i < h & j >= 2 & j + 2 < w { out[i * w + j] = a[i * w + j - 2] + a[i * w + j + 2] * 3 }"
AXES = "if k < h & i < w & j < d { out[(k * w + i) * d + j] = a[(k * w + i) * d + j] + 1 }"
REVERSED = "if i < h & j < w { out[j + w * i] = a[w * i + (w - 1 - j)] }"
LOOPS = """
  if i < h { for q in 0 .. w { let x = a[i * w + q]; if j == q { out[i * w + q] = x + 1 } } }"""
ROWS_OF_TEN = "if i < h & j < 10 & h < 5 { out[i * 10 + j] = a[i * 10 + j] + 2 }"
LEAVING = "if i >= h { return }; if j >= w { return }; out[i * w + j] = a[i * w + j] + 9"
BARRIER = """
  let t = h * 2
  if lid.x == 0 { s[0] = w + t }
  barrier
  let v = s[0] - t
  if i * 2 < t & j < v & i < h { out[i * v + j] = a[i * w + j] + 4 }"""
BODIES = {
    "stencil": STENCIL, "flat": FLAT, "axes": AXES, "reversed": REVERSED, "loops": LOOPS, "literal": ROWS_OF_TEN,
    "leaving": LEAVING, "barrier": BARRIER,
}  # fmt: skip
# Honest and others: too large, empty, and such that products wrap around in 32 bits, to a small number or to zero.
SHAPES = (
    (6, 20, 1), (3, 5, 4), (5, 4, 6), (20, 6, 1), (7, 20, 1), (0, 20, 1), (6, 0, 0), (1 << 16, 1 << 16, 1),
    (1 << 31, 2, 1), (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 20, 3), (6, 0xFFFFFFFF, 1),
    (1 << 16, (1 << 16) + 1, 1 << 16), (4, 1 << 30, 4), (1, 120, 1), (120, 1, 1), (1, 121, 1),
)  # fmt: skip
GRID = (3, 8, 7)


def program(body: str, dtype: str = "u32", size: str = "8") -> Program:
    return parse(HEAD.format(size=size, dtype=dtype, body=body))


def case(made: Program, shape: tuple[int, int, int], length: int = 120, seed: int = 0) -> Case:
    storage = made.buffer("a").dtype.storage
    values = np.random.default_rng(seed).integers(0, 100, length).astype(storage)
    inputs = {"a": values, "out": np.zeros(length, storage), "shapes": np.array([*shape, 0], np.uint32)}
    return Case(made, inputs, grid=GRID, fuel=10_000_000)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", BODIES)
def test_shapes_that_lie_give_the_bytes_of_the_reference(name: str, width: int) -> None:
    made = program(BODIES[name])
    for shape in SHAPES:
        if name == "loops" and shape[1] > 200:
            continue
        for length in (120, 119, 0):
            found = difference(case(made, shape, length), backend(width))
            assert found is None, f"{shape}, {length} elements: {found}"


@pytest.mark.parametrize("dtype", ["u8", "i16", "u64", "f64"])
@pytest.mark.parametrize("size", ["8", "16, 2", "32"])
def test_every_type_and_workgroup_gives_the_bytes_of_the_reference(dtype: str, size: str) -> None:
    body = STENCIL
    for factor in "357":
        body = body.replace(f"* {factor}", f"* {dtype}({factor})")
    made = program(body, dtype, size)
    for shape in SHAPES[:8]:
        assert difference(case(made, shape), backend(16)) is None, shape


@pytest.mark.parametrize("name", [name for name in BODIES if name != "barrier"])
def test_accesses_on_two_axes_keep_no_check_for_each_lane(name: str) -> None:
    kernel = backend(16).kernel(optimize(program(BODIES[name])), grid=GRID).kernel
    assert kernel.notes["checks kept"] == 0
    assert kernel.notes["size checks"] >= 2
    assert kernel.text.count("@checked") == 2


@pytest.mark.parametrize("body", [
    # No guard for one axis, or one of another size, or by a value that an invocation writes.
    "if i < h { out[i * w + j] = 1 }",
    "if j < w { out[i * w + j] = 1 }",
    "if i < h & j < d { out[i * w + j] = 1 }",
    "if i < h & j <= w { out[i * w + j] = 1 }",
    "if i < h & j < w { out[i * w + j + 1] = 1 }",
    "if i < h & j < w { out[i * w + j - 1] = 1 }",
    "if i < h & j < w { out[(i + 1) * w + j] = a[i * w + w + j] }",
    "let v = out[0]; if i < h & j < v { out[i * v + j] = 1 }",
    "let v = out[0]; if i < v & j < w { out[i * w + j] = 1 }",
    "let v = z[0]; if i < h & j < v { out[i * v + j] = 1 }",
    "let v = a[i]; if i < h & j < v { out[i * v + j] = 1 }",
    "let u = w; if j < 3 { u = w + 1 }; if i < h & j < u { out[i * u + j] = 1 }",
    "if i < h & j < w { out[i * w - j] = a[i * w ^ j] }",
    "if i < h { out[i * w] = 1 }",
])  # fmt: skip
def test_what_sizes_do_not_prove_is_checked(body: str) -> None:
    made = program(body)
    found = proofs_of(made)
    stores = {id(node) for node in _stores(made.entry)}
    assert not found.sized & stores
    for shape in SHAPES:
        assert difference(case(made, shape), backend(8)) is None, shape


def _stores(body: n.Body) -> list[n.Store]:
    from vyre.ir import walk

    return [statement for statement in walk.statements(body) if isinstance(statement, n.Store)]


def test_the_least_of_all_sizes_above_a_row_is_required() -> None:
    made = program("if i < h & i < d & j < w { out[i * w + j] = 1 }")
    (bound,) = proofs_of(made).required
    assert bound.buffer == "out"
    shown = [[short_text(value) for value in factor] for factor in bound.factors]
    assert sorted(shown[0]) == ["shapes[0]", "shapes[2]"]
    assert shown[1] == ["shapes[1]"]


@pytest.mark.skipif(sys.platform == "win32", reason="there is no mprotect")
@pytest.mark.parametrize("at_front", [False, True], ids=["at the end of a page", "at the front of a page"])
@pytest.mark.parametrize("name", ["stencil", "flat", "axes", "reversed", "leaving"])
def test_no_shape_makes_a_kernel_touch_memory_that_is_not_its_own(name: str, at_front: bool) -> None:
    made = program(BODIES[name])
    for width in WIDTHS:
        kernel = backend(width).kernel(made, grid=GRID)
        assert not kernel.kernel.is_flat
        for shape in SHAPES:
            owners, addresses = zip(*(guarded(120 * 4, at_front=at_front) for _ in range(2)), strict=True)
            shapes = np.array([*shape, 0], np.uint32)
            stop = np.zeros(1, np.int32)
            words = [stop.ctypes.data, *GRID, *(w for address in addresses for w in (address, 120))]
            block = np.array([*words, shapes.ctypes.data, 4], np.int64)
            call(kernel, block, GRID[0] * GRID[1] * GRID[2])
            assert stop[0] == 0
            assert len(owners) == 2


def random_body(random: Random) -> str:
    """Guards that are complete more often than not, around accesses near to what they guard."""
    sizes = ["h", "w", "d"]
    row, column = random.choice((("i", "j"), ("i", "j"), ("k", "j"), ("i", "k")))
    high, wide = random.sample(sizes, 2) if random.random() < 0.4 else ("h", "w")
    near = random.choice((0, 0, 1, 1, 2))
    guards = [f"{row} >= {near}", f"{column} >= {near}", f"{row} + {near} < {high}", f"{column} + {near} < {wide}"]
    if random.random() < 0.3:
        del guards[random.randrange(4)]
    random.shuffle(guards)

    def index() -> str:
        far, aside = random.randint(-near, near), random.randint(-near, near)
        moved = row if not far else f"({row} + {far})" if far > 0 else f"({row} - {-far})"
        beside = column if not aside else f"({column} + {aside})" if aside > 0 else f"({column} - {-aside})"
        forms = [f"{moved} * {wide} + {beside}", f"{beside} + {wide} * {moved}", f"{moved} * {wide} + {column}"]
        if aside:
            forms.append(f"{moved} * {wide} + {column} {'+' if aside > 0 else '-'} {abs(aside)}")
        if random.random() < 0.2:
            forms = [f"({moved} * {wide} + {beside}) * d + k"]
        return random.choice(forms)

    place = "(k * num_wg.y + i) * num_wg.x * 8 + j"
    reads = " + ".join(f"a[{index()}] * {factor}" for factor in (1, 3, 5))
    store = f"out[{place}] = {reads}"
    shape = random.choice(("if", "nested", "leaving", "loop"))
    if shape == "if":
        return f"if {' & '.join(guards)} {{ {store} }}"
    if shape == "nested":
        return f"if {guards[0]} {{ if {' & '.join(guards[1:])} {{ {store} }} }}"
    if shape == "leaving":
        return f"if !({' & '.join(guards)}) {{ return }}; {store}"
    return f"for q in 0 .. 2 {{ if !({' & '.join(guards)}) {{ continue }}; {store} + q }}"


@pytest.mark.parametrize("width", WIDTHS)
def test_random_guarded_accesses_give_the_bytes_of_the_reference(width: int) -> None:
    sized = 0
    for seed in range(1000 * width, 1000 * width + 25):
        random = Random(seed)
        made = program(random_body(random))
        sized += backend(width).kernel(made, grid=GRID).kernel.notes.get("size checks", 0) > 0
        for shape in random.sample(SHAPES, 3):
            given = case(made, shape, seed=seed)
            given.inputs["out"] = np.zeros(24 * 8 * 7, np.uint32)
            expected = meaning(given)
            for on in (backend(width), backend(width, check_elimination=False)):
                assert compare(expected, outcome(given, on)) is None, f"{seed} {shape}\n{made}"
    assert sized > 8


def test_a_launch_that_lies_runs_the_checked_code_and_the_next_the_other() -> None:
    made = program(STENCIL)
    on = backend(16)
    for shape in ((6, 20, 1), (60, 20, 1), (6, 20, 1)):
        given = case(made, shape)
        assert difference(given, on) is None
    config = DispatchConfig(grid_override=GRID)
    assert "size checks" in on.compile(made, config).explain()


LAUNCH_VALUES = """
program values(workgroup 8) {{
  buffer 0 given: {dtype}[] read
  buffer 1 changed: {dtype}[3] readwrite
  buffer 2 out: {dtype}[] readwrite
  let i = gid.x
  if i < 9 {{
    out[i] = select(given[0] == given[2], given[1], select(given[7] == changed[2], given[0], given[2]))
    if i == 3 {{ changed[1] = given[1] }}
  }}
  for k in 0 .. i & 3 {{ out[i] = select(given[k] == given[1], given[2], out[i]) }}
}}"""


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", list(DType), ids=str)
def test_elements_of_arrays_that_do_not_change_are_loaded_once(dtype: DType, width: int) -> None:
    made = parse(LAUNCH_VALUES.format(dtype=dtype))
    text = backend(width).kernel(made).kernel.text
    assert text.count("= freeze") == 4
    assert "%launch3" in text
    for values in ([], [1], [0, 1, 1], [1, 0, 1, 1, 0, 1, 0, 1]):
        given = np.array(values).astype(dtype.storage)
        inputs = {"given": given, "changed": np.zeros(3, dtype.storage), "out": np.zeros(16, dtype.storage)}
        assert difference(Case(made, inputs, grid=(2, 1, 1)), backend(width)) is None, values
