"""The native runtime: the shipped IR is current and portable, Python and C agree on structs, threads do not race."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import threading
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest

from cpu_support import backend, sharing_backend
from vyre.backends.cpu import layout
from vyre.backends.cpu.interrupts import InterruptState
from vyre.backends.cpu.native import runtime_text
from vyre.driver.config import DispatchConfig
from vyre.ir import parse

ROOT = Path(__file__).resolve().parents[2]
_spec = importlib.util.spec_from_file_location("make_native", ROOT / "scripts" / "make_native.py")
assert _spec is not None
assert _spec.loader is not None
make_native = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(make_native)

COUNT = parse("""
program count(workgroup 64) {
  buffer 0 a: u32[] readwrite
  buffer 1 going: u32[1] read
  while going[0] == 1 { a[gid.x] = a[gid.x] + 1 }
  a[gid.x] = a[gid.x] + gid.x
}""")

TARGETS = [
    ("x86_64-linux-gnu", "x86_64", ""),
    ("x86_64-apple-darwin", "x86_64", ""),
    ("aarch64-linux-gnu", "aarch64", "+rcpc,+lse"),
    ("arm64-apple-darwin", "arm64", "+rcpc,+lse"),
]

FAULTS = {
    "a job published without an order": (
        ("atomic_store(&pool->job, job)", "atomic_store_explicit(&pool->job, job, memory_order_relaxed)"),
        (
            "atomic_fetch_add(&pool->generation, 1);\n    if",
            "atomic_fetch_add_explicit(&pool->generation, 1, memory_order_relaxed);\n    if",
        ),
    ),
    "a launch that does not wait for its workers": (("if (!spin(&pool->working, 0, true, pool))", "if (false)"),),
    "a worker that leaves without an order": (
        (
            "atomic_fetch_sub(&pool->working, 1) == 1",
            "atomic_fetch_sub_explicit(&pool->working, 1, memory_order_relaxed) == 1",
        ),
    ),
}


def test_the_generated_files_are_up_to_date() -> None:
    assert make_native.HEADER.read_text(encoding="utf-8") == make_native.header(), "run make native"
    text = make_native.IR.read_text(encoding="utf-8")
    assert text.startswith(make_native.first_lines()), "run make native"


def test_the_digest_covers_the_source_the_layout_and_the_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = make_native.digest()
    with monkeypatch.context() as patch:
        patch.setattr(make_native, "FLAGS", (*make_native.FLAGS, "-O1"))
        assert make_native.digest() != before
    with monkeypatch.context() as patch:
        patch.setattr(layout.Run, "WORDS", layout.Run.WORDS + 1)
        assert make_native.digest() != before
    changed = tmp_path / "runtime.c"
    changed.write_text(make_native.SOURCE.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    monkeypatch.setattr(make_native, "SOURCE", changed)
    assert make_native.digest() != before


@pytest.mark.parametrize(("triple", "machine", "features"), TARGETS)
def test_the_shipped_ir_becomes_code_for_every_target(triple: str, machine: str, features: str) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    try:
        target = llvm.Target.from_triple(triple)
    except RuntimeError as error:
        pytest.skip(f"this LLVM has no such target: {error}")
    selected = target.create_target_machine(opt=0, reloc="pic", codemodel="small", features=features)
    module = llvm.parse_assembly(runtime_text(machine))
    module.triple, module.data_layout = triple, str(selected.target_data)
    module.verify()
    assembly = selected.emit_assembly(module)
    assert ("pause" if machine == "x86_64" else "isb") in assembly
    # An acquire load with these instructions may pass the store before it, and a job outlive its launch.
    assert "ldapr" not in assembly


def test_the_shipped_ir_names_no_target_and_no_compiler() -> None:
    text = make_native.IR.read_text(encoding="utf-8")
    names = ("target ", "attributes ", "!", "source_filename", "dso_local", "x86", "aarch64", "musl")
    assert [name for name in names if name in text] == []


def test_what_ties_ir_to_a_target_is_removed() -> None:
    text = """; ModuleID = 'a.c'
source_filename = "a.c"
target datalayout = "e-m:e"
target triple = "x86_64"

@array_data_offset = external local_unnamed_addr constant i64, align 8

define dso_local void @f(ptr noundef %0) local_unnamed_addr #0 {
  %1 = load i64, ptr %0, align 8, !tbaa !5
  tail call void @machine_pause() #1
  br label %2, !llvm.loop !7
}

declare void @machine_pause() local_unnamed_addr #2

attributes #0 = { nounwind "target-cpu"="x86-64" }

!5 = !{!"int"}
"""
    assert (
        make_native.portable(text)
        == """define void @f(ptr noundef %0) local_unnamed_addr nounwind {
  %1 = load i64, ptr %0, align 8
  tail call void @machine_pause()
  br label %2
}
"""
    )


def test_fields_follow_one_another() -> None:
    for struct in layout.STRUCTS:
        assert [field.start for field in struct.FIELDS] == [
            sum(field.words for field in struct.FIELDS[:place]) for place in range(len(struct.FIELDS))
        ]
        assert [getattr(struct, field.name.upper()) for field in struct.FIELDS] == [f.start for f in struct.FIELDS]
    # What idle workers poll, what workers count and what sleepers count are on cache lines of their own.
    pool = layout.Pool
    lines = [place * layout.WORD_BYTES // 64 for place in (pool.GENERATION, pool.WORKING, pool.SLEEPING, pool.WORDS)]
    assert len(set(lines)) == len(lines)
    assert pool.WORDS % 8 == layout.Part.WORDS % 8 == 0


def test_an_interrupt_that_came_before_the_launch_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    # As if the signal came after Python last looked for one.
    def admits(state: InterruptState) -> bool:
        state._arrived.value = 1
        return True

    monkeypatch.setattr(InterruptState, "admits", admits)
    for on in (backend(), sharing_backend()):
        for count in (1, 1000):
            with pytest.raises(KeyboardInterrupt):
                on.dispatch(COUNT, [np.zeros(count, np.uint32), np.ones(1, np.uint32)], DispatchConfig(timeout_s=20.0))


def test_callers_share_a_pool_and_closing_it_waits_for_nobody() -> None:
    on = sharing_backend(3)
    going, count = np.ones(1, np.uint32), 5000
    begun, endings = threading.Event(), []

    def endless() -> None:
        begun.set()
        try:
            on.dispatch(COUNT, [np.zeros(count, np.uint32), going], DispatchConfig(timeout_s=1.5))
        except Exception as error:
            endings.append(error.code)

    thread = threading.Thread(target=endless)
    thread.start()
    begun.wait()
    for _ in range(3):
        out = on.dispatch(COUNT, [np.zeros(count, np.uint32), np.zeros(1, np.uint32)])[0]
        assert (np.frombuffer(out, np.uint32) == np.arange(count)).all()
        on.device.pool.close()
    assert thread.is_alive()
    thread.join()
    assert endings == ["timeout"]


@pytest.fixture
def compiler() -> str:
    found = shutil.which("gcc")
    if found is None:
        why = "gcc was not found, which ThreadSanitizer comes with. Fix: apt-get install gcc"
        if os.environ.get("CI") == "true":
            pytest.fail(why, pytrace=False)
        pytest.skip(why)
    return found


def sanitized(compiler: str, directory: Path, source: str, rounds: int) -> subprocess.CompletedProcess[str]:
    """Run the stress test on a runtime built with ThreadSanitizer."""
    runtime, program = directory / "runtime.c", directory / "stress"
    runtime.write_text(source, encoding="utf-8")
    native = ROOT / "native"
    flags = ("-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fsanitize=thread", "-I", str(native))
    subprocess.run(
        [compiler, *flags, str(runtime), str(native / "stress.c"), "-o", str(program), "-lpthread"], check=True
    )
    # ThreadSanitizer needs addresses where it expects them.
    fixed = ("setarch", "-R") if shutil.which("setarch") else ()
    environment = os.environ | {"TSAN_OPTIONS": "exitcode=66"}
    return subprocess.run(
        [*fixed, str(program), str(rounds)], capture_output=True, text=True, env=environment, timeout=240
    )


@pytest.mark.long
def test_the_thread_pool_has_no_data_race(compiler: str, tmp_path: Path) -> None:
    ran = sanitized(compiler, tmp_path, make_native.SOURCE.read_text(encoding="utf-8"), 20)
    assert (ran.returncode, ran.stdout) == (0, "all results are right\n"), ran.stderr
    assert ran.stderr == ""


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_race_is_found(compiler: str, tmp_path: Path, fault: str) -> None:
    source = make_native.SOURCE.read_text(encoding="utf-8")
    for right, wrong in FAULTS[fault]:
        assert source.count(right) == 1
        source = source.replace(right, wrong)
    # A race shows in some interleavings only, so the pool gets as many chances as the right source.
    ran = sanitized(compiler, tmp_path, source, 20)
    assert ran.returncode != 0
    assert "WARNING: ThreadSanitizer: data race" in ran.stderr
