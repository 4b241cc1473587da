"""What each part of the language means, by running it: on the reference and on the processor."""

from __future__ import annotations

import linecache
import math
import subprocess
import sys
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_support import module_of

import cpu_support
import vyre
from vyre import f32, f64, i8, i32, i64, u8, u32, u64
from vyre.backends.reference import ReferenceBackend
from vyre.errors import KernelError

BACKENDS = [ReferenceBackend(), cpu_support.backend(None, 1)]
SCALE = 3
WEIGHTS = (1, 2.5, 4)
TYPED = np.int32(-7)


@pytest.fixture(params=BACKENDS, ids=lambda backend: backend.id)
def backend(request: pytest.FixtureRequest) -> Any:
    return request.param


def u32s(*values: int) -> np.ndarray:
    return np.array(values, np.uint32)


@vyre.kernel(workgroup=1)
def counting(out: vyre.InOut[i64]):
    at = 0
    for i in range(3):
        out[at] = i64(i)
        at += 1
    for i in range(i32(4), -3, -3):
        out[at] = i64(i)
        at += 1
    for i in range(u64(1) << 40, (u64(1) << 40) + 5, 2):
        out[at] = i64(i)
        at += 1
    for i in range(i8(120), 127, 3):
        out[at] = i64(i)
        at += 1
    for i in range(5, 2):
        out[at] = i64(i)
        at += 1


def test_ranges_count_like_python_in_their_type(backend: Any) -> None:
    out = np.full(13, -99, np.int64)
    counting.on(backend)[1](out)
    big = 1 << 40
    assert out.tolist() == [*range(3), *range(4, -3, -3), *range(big, big + 5, 2), *range(120, 127, 3), -99]


@vyre.kernel(workgroup=1)
def loop_names(out: vyre.InOut[u32]):
    i = 100
    for i in range(4):
        i = i * 10
        out[0] += i
    out[1] = i
    for j in range(3):
        if j == 2:
            continue
        out[2] += j + 1
    while True:
        found = out[0] + 1
        if found > 3:
            break
    out[3] = found


def test_a_loop_name_is_a_name_like_others(backend: Any) -> None:
    out = np.zeros(4, np.uint32)
    loop_names.on(backend)[1](out)
    assert out.tolist() == [60, 30, 3, 61]


@vyre.kernel(workgroup=1)
def numbers(out: vyre.InOut[f64]):
    out[0] = SCALE * WEIGHTS[1] + WEIGHTS[-1]
    out[1] = 2**70 / 2**68 + math.pi
    out[2] = f64(-7 // 2) + f64(u32(-7 % 3 + 10)) + len(WEIGHTS)
    out[3] = f64(TYPED + 1)
    out[4] = f64(u8(300.7)) + f64(i32(-2.9))
    out[5] = 1.0 if (1 << 3) == 8 else out[0]
    out[6] = f64(f32(0.1))
    whole: i32 = -5
    out[7] = f64(whole)


def test_numbers_are_exact_until_they_meet_a_type(backend: Any) -> None:
    out = np.zeros(8)
    numbers.on(backend)[1](out)
    single = float(np.float32(0.1))
    assert out.tolist() == [11.5, 4 + math.pi, -3 + 9 + 3, -6, 255 - 2, 1, single, -5]


@vyre.kernel(workgroup=1)
def effects(log: vyre.InOut[u32], out: vyre.InOut[u32]):
    if vyre.atomic_add(log, 0, 1) == 0 or vyre.atomic_add(log, 1, 1) == 0:
        out[0] = 1
    if vyre.atomic_add(log, 2, 1) == 9 and vyre.atomic_add(log, 3, 1) == 0:
        out[1] = 1
    out[2] = vyre.atomic_add(log, 4, 5) if out[0] == 0 else vyre.atomic_add(log, 5, 6)
    if 0 <= vyre.atomic_add(log, 6, 1) <= vyre.atomic_add(log, 7, 1) < 1:
        out[3] = 1
    while vyre.atomic_add(log, 8, 1) < 3 and log[8] < 3:
        out[4] += 1
    out[log[9]] = vyre.atomic_add(log, 9, 5)
    log[10], log[11] = log[11], log[10]


def test_what_has_an_effect_is_evaluated_as_python_would(backend: Any) -> None:
    log, out = np.zeros(12, np.uint32), np.zeros(6, np.uint32)
    log[10:] = 7, 8
    effects.on(backend)[1](log, out)
    assert log.tolist() == [1, 0, 1, 0, 0, 6, 1, 1, 3, 5, 8, 7]
    assert out.tolist() == [1, 0, 0, 1, 2, 0]


@vyre.function
def extremes(values, n):
    low, high = values[0], values[0]
    for k in range(1, n):
        low, high = min(low, values[k]), max(high, values[k])
    return low, high


@vyre.function
def first_above(values, limit: f32, fallback: u32 = 77) -> u32:
    for k in range(len(values)):
        for _ in range(2):
            if values[k] > limit:
                return k
    return fallback


@vyre.function
def bump(array: vyre.InOut[u32], at):
    if at > 2:
        return
    array[at] += 1


@vyre.kernel(workgroup=1)
def with_functions(values: vyre.In[f32], ends: vyre.Out[f32], found: vyre.InOut[u32]):
    ends[0], ends[1] = extremes(values, len(values))
    found[0] = first_above(values, 2) + 10 * first_above(values, 1e9)
    found[1] = first_above(limit=2.5, values=values, fallback=5)
    bump(found, 2)
    bump(found, 3)


def test_functions_are_inlined(backend: Any) -> None:
    ends, found = np.zeros(2, np.float32), np.zeros(4, np.uint32)
    with_functions.on(backend)[1](np.array([1, 3, -2, 2], np.float32), ends, found)
    assert ends.tolist() == [-2, 3]
    assert found.tolist() == [1 + 770, 1, 1, 0]
    assert first_above([1.0, 5.0], 2.0) == 1


@vyre.kernel(workgroup=(4, 2))
def ids(out: vyre.Out[u32, 3]):
    x, y = vyre.gid(0), vyre.gid(axis=1)
    out[y, x, 0] = vyre.lid(0) + 10 * vyre.lid(1)
    out[y, x, 1] = vyre.wg(0) + 10 * vyre.wg(1)
    out[y, x, 2] = vyre.num_workgroups(0) + 10 * vyre.num_workgroups(1)


def test_ids_and_three_axes(backend: Any) -> None:
    out = np.zeros((4, 8, 3), np.uint32)
    ids.on(backend)[(8, 4)](out)
    y, x = np.mgrid[:4, :8]
    assert (out[..., 0] == x % 4 + 10 * (y % 2)).all()
    assert (out[..., 1] == x // 4 + 10 * (y // 2)).all()
    assert (out[..., 2] == 22).all()
    strided = np.zeros((3, 8, 4), np.uint32)
    ids.on(backend).grid(2, 2)(strided.T)
    assert (strided.T[:, :, 0] == out[..., 0]).all()


@vyre.kernel(workgroup=8, subgroup=4)
def together(out: vyre.InOut[u32]):
    tile = vyre.shared(u32, (2, 4))
    i = vyre.lid()
    tile[i // 4, i % 4] = i
    vyre.barrier()
    out[i] = tile[1 - i // 4, i % 4] + tile[i, 9]
    out[i] += vyre.subgroup_reduce("add", i) + 100 * vyre.subgroup_size()
    out[i] += 1000 * vyre.subgroup_shuffle(i, 1) + 100000 * vyre.subgroup_ballot(i % 2 == 1)
    vyre.grid_sync()
    out[i] += vyre.subgroup_lane()


def test_workgroups_and_subgroups(backend: Any) -> None:
    out = np.zeros(8, np.uint32)
    together.on(backend)[8](out)
    sums = [0 + 1 + 2 + 3] * 4 + [4 + 5 + 6 + 7] * 4
    expected = [(i + 4) % 8 + sums[i] + 400 + 1000 * (1 if i < 4 else 5) + 100000 * 0b1010 + i % 4 for i in range(8)]
    assert out.tolist() == expected


@vyre.kernel(workgroup=1)
def operators(x: vyre.In[f32], n: vyre.In[u32], out: vyre.Out[f32], bits: vyre.Out[u32], flags: vyre.Out[bool]):
    out[0] = vyre.fma(x[0], x[1], 1)
    out[1] = vyre.sqrt(x[1]) + vyre.floor(x[0]) + abs(-x[1]) + round(x[0])
    out[2] = vyre.bitcast(f32, n[0])
    out[3] = max(x[0], x[1], 3)
    bits[0] = vyre.popcount(n[0]) + vyre.clz(n[1]) + vyre.rotl(n[1], 4)
    bits[1] = vyre.sat_sub(n[1], 10) + vyre.abs_diff(n[1], 10) + (~n[1] & 0xF) + (n[1] >> 1 ^ 2)
    flags[0] = vyre.is_nan(x[0]) or not x[0] > x[1]
    flags[1] = bool(n[0]) and n[1] != 0


def test_the_operators_of_the_table(backend: Any) -> None:
    out, bits, flags = np.zeros(4, np.float32), np.zeros(2, np.uint32), np.zeros(2, np.bool_)
    operators.on(backend)[1](np.array([2.5, 4], np.float32), u32s(0x3F800001, 6), out, bits, flags)
    assert out.tolist() == [11, 2 + 2 + 4 + 2, float(np.array([0x3F800001], np.uint32).view(np.float32)[0]), 4]
    assert bits.tolist() == [8 + 29 + 96, 0 + 4 + 9 + (3 ^ 2)]
    assert flags.tolist() == [True, True]


def test_numbers_from_outside_are_looked_at_in_every_call(tmp_path: Path, backend: Any) -> None:
    text = "import vyre\nfrom vyre import u32\nN = 2\n\n@vyre.kernel\ndef k(y: vyre.InOut[u32]):\n    y[0] = N\n"
    module = module_of(text, tmp_path)
    out = np.zeros(1, np.uint32)
    for number in (2, 5, 5, 7):
        module.N = number
        module.k.on(backend)[1](out)
        assert out[0] == number


def adder(amount: int) -> vyre.lang.Kernel:
    @vyre.kernel
    def add(y: vyre.InOut[u32]):
        y[vyre.gid()] += amount

    return add


def test_kernels_close_over_numbers(backend: Any) -> None:
    out = np.zeros(3, np.uint32)
    adder(2).on(backend)[3](out)
    adder(5).on(backend)[3](out)
    assert out.tolist() == [7, 7, 7]


@vyre.kernel(workgroup=1)
def odd_names(let: u32, größe: u32, inf: vyre.In[u32], block: vyre.InOut[u32]):
    if_ = let + größe
    for true in range(len(inf)):
        if_ += inf[true]
    block[0] = if_


def test_any_name_of_python_is_a_name(backend: Any) -> None:
    out = np.zeros(1, np.uint32)
    odd_names.on(backend)[1](1, 2, u32s(3, 4), out)
    assert out[0] == 10


def kernel_of(tmp_path: Path, body: str) -> Any:
    text = f"import vyre\nfrom vyre import u32\n\n@vyre.kernel(workgroup=1)\ndef k(y: vyre.InOut[u32]):\n{body}"
    return module_of(text, tmp_path).k


def test_long_expressions_and_long_chains(tmp_path: Path, backend: Any) -> None:
    out = np.zeros(1, np.uint32)
    out[0] = 1
    kernel_of(tmp_path, f"    y[0] = {' + '.join(['y[0]'] * 900)}\n").on(backend)[1](out)
    assert out[0] == 900
    chain = "".join(f"    {'el' if k else ''}if y[0] == {k}:\n        y[0] = {k + 1}\n" for k in range(50))
    out[0] = 31
    kernel_of(tmp_path, chain).on(backend)[1](out)
    assert out[0] == 32


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (f"    y[0] = {' + '.join(['y[0]'] * 1500)}\n", "V033"),
        ("".join(f"    {'el' if k else ''}if y[0] == {k}:\n        y[0] = 1\n" for k in range(200)), "V018"),
    ],
)
def test_what_is_over_a_limit_is_named(tmp_path: Path, body: str, code: str) -> None:
    with pytest.raises(KernelError, match=code):
        _ = kernel_of(tmp_path, body).program


def refused(make: Callable[[], object]) -> str:
    with pytest.raises(KernelError) as error:
        make()
    return str(error.value)


def test_what_has_no_source_is_named() -> None:
    names: dict[str, Any] = {"vyre": vyre}
    exec("def k(y: vyre.InOut[vyre.u32]):\n    y[0] = 1\n", names)
    assert refused(lambda: vyre.kernel(names["k"])) == (
        "[kernel] the source of 'k' is not there to be read (<string>): kernels are translated from their text. "
        "Fix: write it in a file, or in a cell of a notebook."
    )


def test_kernels_in_the_cells_of_a_notebook(backend: Any) -> None:
    names: dict[str, Any] = {}
    cells = [
        "import vyre\nfrom vyre import u32\nSTEP = 2\n",
        "@vyre.kernel\ndef k(y: vyre.InOut[u32]):\n    y[vyre.gid()] += STEP\n",
        "STEP = 5\n",
        "@vyre.kernel\ndef k(y: vyre.InOut[u32]):\n    y[vyre.gid()] = STEP / 2\n",
    ]
    for number, cell in enumerate(cells):
        # As a notebook does: every cell is a file of its own, that only linecache knows.
        linecache.cache[f"<cell {number}>"] = len(cell), None, cell.splitlines(keepends=True), f"<cell {number}>"
        exec(compile(cell, f"<cell {number}>", "exec"), names)
        if number in (1, 2):
            out = u32s(1)
            names["k"].on(backend)[1](out)
            assert out[0] == 1 + names["STEP"]
    message = refused(lambda: names["k"].program)
    assert message.startswith(
        "error[kernel]: 2.5 is no u32, and takes the type of what stands beside it\n --> <cell 3>:3"
    )


@vyre.kernel(workgroup=1)
def numbers_alone(x: vyre.In[i32], floats: vyre.Out[f32], whole: vyre.InOut[i32]):
    positive = x[0] > 0
    floats[0] = min(1, 2.5)
    floats[1] = max(1 if positive else 3, 2.5)
    floats[2] = vyre.fma(1, 0.5, 1 if positive else 2)
    floats[3] = -(1 if positive else 0.0)
    floats[4] = (1 if positive else 2.5) / 2
    floats[5] = f32((1 if positive else 2) == 1)
    whole[0] = -(1 if positive else 2) + max(-7, 3)
    whole[1] = x[0] * vyre.select(positive, 1, -1)
    whole[2] = i32(2.9 if positive else -2.9)
    whole[3], whole[4] = (4 if whole[0] > 0 else 5), (6 if positive else 7 if x[0] == 0 else 8)


def test_numbers_that_meet_only_numbers(backend: Any) -> None:
    floats, whole = np.zeros(6, np.float32), np.zeros(5, np.int32)
    numbers_alone.on(backend)[1](np.array([5], np.int32), floats, whole)
    assert (floats.tolist(), whole.tolist()) == ([1, 2.5, 1.5, -1, 0.5, 1], [2, 5, 2, 4, 6])
    numbers_alone.on(backend)[1](np.array([-5], np.int32), floats, whole)
    assert (floats.tolist(), whole.tolist()) == ([1, 3, 2.5, 0, 1.25, 0], [1, 5, -2, 4, 8])
    assert np.signbit(floats[3])


class Colour(IntEnum):
    RED = 3
    GREEN = 5


class Sizes:
    step = 10


@vyre.kernel(workgroup=1)
def constants_of_classes(y: vyre.InOut[u32]):
    y[0] = Colour.RED + Sizes.step if y[0] == Colour.GREEN else Colour.GREEN


def test_numbers_of_classes_come_from_outside(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    out = u32s(5)
    constants_of_classes.on(backend)[1](out)
    assert out[0] == 13
    before = constants_of_classes.program
    assert constants_of_classes.program is before
    monkeypatch.setattr(Sizes, "step", 20)
    out[0] = 5
    constants_of_classes.on(backend)[1](out)
    assert out[0] == 23


def test_types_that_only_the_signature_names(tmp_path: Path) -> None:
    text = "import vyre\n\ndef make(real):\n    @vyre.kernel\n    def k(y: vyre.InOut[real]):\n        y[0] = 1\n"
    made = module_of(text + "    return k\n", tmp_path).make
    assert [made(dtype).program.buffers[0].dtype for dtype in (f32, u8)] == [f32, u8]
    later = module_of("from __future__ import annotations\n" + text + "    return k\n", tmp_path, "later").make
    assert "`from __future__ import annotations` hides what is local" in refused(lambda: later(f32).program)
    assert repr(vyre.kernel(refused)) == "<vyre kernel refused(...)>"


def test_a_kernel_in_a_notebook_shows_its_function_and_its_program() -> None:
    page = named_like_ours._repr_html_()
    assert "def named_like_ours(shapes: vyre.InOut[u32, 2]" in page
    assert 'class="vyre-keyword">program</span> named_like_ours(' in page
    assert effects._repr_html_().count("<") == effects._repr_html_().count(">")
    wrong = vyre.kernel(refused)
    assert "error[kernel]: " in wrong._repr_html_()
    assert "Callable[[], object]) -&gt; str:" in wrong._repr_html_()


def test_what_is_no_plain_function_is_named(tmp_path: Path) -> None:
    assert refused(lambda: vyre.kernel(3)) == (
        "[kernel] @vyre.kernel stands on a int. Fix: put it directly on a `def` of your own."
    )
    assert refused(lambda: vyre.kernel(lambda: None).program).startswith("error[kernel]: a lambda cannot be a kernel\n")
    text = "import vyre\n\n@vyre.kernel\nasync def k(y: vyre.InOut[vyre.u32]):\n    y[0] = 1\n"
    assert "an async function" in refused(lambda: module_of(text, tmp_path).k.program)
    for workgroup in (0, (8, 8, 8, 8), 2048, 1.5):
        assert "has a workgroup of" in refused(lambda size=workgroup: vyre.kernel(workgroup=size)(effects.__wrapped__))


def test_a_file_that_changed_is_named(tmp_path: Path) -> None:
    module = module_of("import vyre\n\n@vyre.kernel\ndef k(y: vyre.InOut[vyre.u32]):\n    y[0] = 1\n", tmp_path)
    function = module.k.__wrapped__
    Path(module.__file__).write_text("import vyre\n\n# another file\n\nx = [\n    1]\n", encoding="utf-8")
    message = refused(lambda: vyre.kernel(function).program)
    assert "may have changed since it was loaded" in message or "cannot be read on its own" in message


def test_functions_of_the_language_are_for_kernels() -> None:
    assert refused(lambda: vyre.gid()) == (
        "[kernel] vyre.gid was called outside a kernel, where it has no meaning. "
        "Fix: call it in a function with @vyre.kernel or @vyre.function."
    )


def test_the_listed_names_are_the_functions_of_the_language() -> None:
    assert list(vyre.lang.INTRINSICS) == vyre._INTRINSICS
    assert vyre.min is vyre.lang.INTRINSICS["min"]


def test_the_text_of_a_program_is_readable() -> None:
    assert str(adder(2).program) == (
        "program add(workgroup 64) {\n  buffer 0 y: u32[] readwrite\n\n  y[gid.x] = y[gid.x] + 2\n}"
    )


@vyre.kernel(workgroup=1)
def named_like_ours(shapes: vyre.InOut[u32, 2], index: u32, value: u32):
    before, between = shapes[index, value], index + 1
    shapes[0, 0], shapes[1, 1] = before + between, shapes[0, 1]


def test_names_that_the_translation_would_choose_itself(backend: Any) -> None:
    data = u32s(1, 2, 3, 4).reshape(2, 2)
    named_like_ours.on(backend)[1](data, 1, 0)
    assert data.tolist() == [[5, 2], [3, 2]]


def test_a_function_that_was_defined_again_is_used(tmp_path: Path, backend: Any) -> None:
    text = "import vyre\nfrom vyre import u32\n\n@vyre.function\ndef f(x):\n    return x + 1\n\n"
    text += "@vyre.kernel(workgroup=1)\ndef k(y: vyre.InOut[u32]):\n    y[0] = f(y[0])\n"
    module = module_of(text, tmp_path)
    out = np.zeros(1, np.uint32)
    module.k.on(backend)[1](out)
    module.f = module_of(text.replace("x + 1", "x + 10"), tmp_path, "again").f
    module.k.on(backend)[1](out)
    assert out[0] == 11


def test_what_nothing_reaches_may_not_read_what_has_no_value(tmp_path: Path) -> None:
    with pytest.raises(KernelError, match="'late' has no value here, which nothing reaches"):
        _ = kernel_of(tmp_path, "    return\n    y[0] = late\n    late = 1\n").program


def test_looking_at_vyre_loads_no_kernels() -> None:
    loaded = "import sys, vyre; vyre.KernelError; print('vyre.lang' in sys.modules, 'numpy' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert answer.stdout == "False False\n"
