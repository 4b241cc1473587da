"""Compiled code is freed with what holds it: compiling and loading many kernels takes no memory that stays."""

from __future__ import annotations

import subprocess
import sys

import pytest

from vyre.backends.cpu.compile import object_code

# Each kernel differs in its constants. A child process has no memory of other tests to reuse.
GROWTH = """
import gc, os, sys
from pathlib import Path
from vyre import parse
from vyre.backends.cpu.compile import Loaded, object_code
from vyre.emit.llvm import KERNEL, emit_kernel

def kilobytes():
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024

def kernel(number):
    text = f"program p(workgroup 64) {{ buffer 0 a: u32[] readwrite; a[gid.x] = (a[gid.x] ^ {number}) * {number + 3} }}"
    return emit_kernel(parse(text), 8, flat=True).text

warm, count, what = 60, int(sys.argv[2]), sys.argv[1]
texts = [kernel(number) for number in range(warm + count)]
codes = [object_code(text) for text in texts[:10]]
for number, text in enumerate(texts):
    if number == warm:
        before = kilobytes()
    if what == "load":
        code = codes[number % 10]
    else:
        code = object_code(text, optimize=what == "optimized")
    loaded = Loaded(code)
    loaded.address(KERNEL)
print((kilobytes() - before) / count)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the size of a process is read from /proc")
@pytest.mark.parametrize(("what", "count", "limit"), [("load", 600, 2), ("optimized", 200, 10), ("quick", 200, 4)])
def test_a_kernel_that_is_dropped_leaves_no_memory(what: str, count: int, limit: float) -> None:
    done = subprocess.run(
        [sys.executable, "-c", GROWTH, what, str(count)], capture_output=True, text=True, timeout=300, check=True
    )
    assert float(done.stdout) < limit


def test_code_does_not_depend_on_what_was_compiled_before() -> None:
    """The passes are made once and used for every kernel."""
    text = "define i32 @kernel(i32 %x) {\n  %y = mul i32 %x, 4\n  %z = sub i32 %y, %y\n  ret i32 %z\n}"
    other = text.replace("mul", "shl").replace("sub", "add")
    first, second = object_code(text), object_code(other)
    assert first != second
    assert [object_code(one) for one in (other, text, other)] == [second, first, second]


# A module has to go before its context, also where the garbage collector finds both in one cycle.
CYCLES = """
import gc
from vyre.backends.cpu.compile import object_code
from vyre.errors import KernelCompileFailed

BROKEN = '''define void @kernel() {
entry:
  br label %x
x:
  %p = phi i32 [1, %y]
  ret void
y:
  br label %x
}'''
for turn in range(300):
    try:
        object_code(BROKEN, verify=True)
    except KernelCompileFailed as error:
        error.itself = error
    if turn % 7 == 0:
        gc.collect()
"""


def test_failures_that_the_garbage_collector_finds_crash_no_process() -> None:
    assert subprocess.run([sys.executable, "-c", CYCLES], timeout=60, check=False).returncode == 0
