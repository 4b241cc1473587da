"""What goes wrong on a device is told by name, with a fix, and leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import vyre
from backends_for_tests import increment
from vyre.backends.webgpu import WebGpuBackend, adapters, launches, probe
from vyre.driver import OutputBuffers, Step, list_backends, telemetry
from vyre.driver.config import DispatchConfig
from vyre.errors import (
    BackendUnavailable,
    BadInputs,
    DeviceLost,
    DeviceOutOfMemory,
    DispatchFailed,
    KernelCompileFailed,
    Timeout,
)
from vyre.ir import parse
from webgpu_support import backend

LONG = """
program long(workgroup 64) {
  buffer 0 out: u32[] readwrite
  let x = out[gid.x]
  for k in 0 .. 50000 { x = x * 1664525 + (x >> 3) }
  out[gid.x] = x
}
"""

ENDLESS = """
program endless(workgroup 4) {
  buffer 0 out: u32[4] readwrite
  let k = gid.x
  while k < 4096 { k = k & 1023 }
  out[gid.x] = k
}
"""


@pytest.fixture
def own() -> Iterator[WebGpuBackend]:
    """A device that a test may lose."""
    backend()
    on = WebGpuBackend()
    on.prepare()
    yield on
    on.shutdown()


def test_a_lost_device_is_named_and_found_again(own: WebGpuBackend) -> None:
    data = [np.array([1, 2], "<u4")]
    state = own.allocate(8)
    sequence = own.prepare_sequence([Step(increment(), [state])])
    own.gpu.device.destroy()
    into = OutputBuffers([bytearray(b"as it was")])
    attempts: list[Any] = [
        lambda: own.dispatch(increment(), data, into=into),
        lambda: own.allocate(8),
        lambda: own.upload(state, data[0]),
        lambda: own.download(state),
        lambda: own.dispatch_resident(increment(), [state]),
        sequence.run,
    ]
    for attempt in attempts:
        with pytest.raises(DeviceLost, match="try_recover"):
            attempt()
        assert own.device_lost()
    assert bytes(into[0]) == b"as it was"
    own.try_recover()
    assert not own.device_lost()
    assert np.frombuffer(own.dispatch(increment(), data)[0], "<u4").tolist() == [2, 3]
    for use in (lambda: own.download(state), lambda: own.dispatch_resident(increment(), [state]), sequence.run):
        with pytest.raises(BadInputs, match="was lost"):
            use()
    own.free(state)
    with own.allocate(8) as fresh:
        own.upload(fresh, data[0])
        own.run_sequence([Step(increment(), [fresh])])
        assert np.frombuffer(own.download(fresh), "<u4").tolist() == [2, 3]


def test_executables_outlive_a_lost_device_and_its_scratch_memory_does_not(own: WebGpuBackend) -> None:
    data = [np.array([1, 2], "<u4")]
    executable = own.compile(increment())
    executable.dispatch(data)
    lost = weakref.ref(own.gpu)
    own.gpu.device.destroy()
    with pytest.raises(DeviceLost):
        executable.dispatch(data)
    own.try_recover()
    assert not own.scratch._kept
    assert not own.device.scratch._kept
    for _ in range(2):
        assert np.frombuffer(executable.dispatch(data)[0], "<u4").tolist() == [2, 3]
    assert own.gpu is not lost()


def test_recovering_a_device_that_is_there_changes_nothing(own: WebGpuBackend) -> None:
    gpu = own.gpu
    own.try_recover()
    assert own.gpu is gpu


def test_what_the_compiler_refuses_is_shown_with_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    program = increment(name="broken")

    def broken(*given: Any, **options: Any) -> Any:
        kernel = emitted(*given, **options)
        return type(kernel)(kernel.text.replace("fn main(", "fn main((", 1), *list(msgspec_fields(kernel))[1:])

    emitted = launches.emit_wgsl
    monkeypatch.setattr(launches, "emit_wgsl", broken)
    with pytest.raises(KernelCompileFailed) as caught:
        backend().dispatch(program, [np.zeros(4, "<u4")])
    line = 1 + caught.value.source.split("\n").index(next(t for t in caught.value.source.split("\n") if "main((" in t))
    assert f"wgsl:{line}:" in caught.value.compiler_message
    assert "Fix:" in str(caught.value)


CUT = """
program cut(workgroup 64) {
  buffer 0 a: u32[] readwrite
  a[gid.x] = a[gid.x] + 1
  grid_sync
  a[gid.x] = a[gid.x] * 2
}
"""


def test_what_the_compiler_refuses_is_told_when_the_program_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    emitted = launches.emit_wgsl

    def broken(program: Any, **options: Any) -> Any:
        kernel = emitted(program, **options)
        is_second = "* 2" in str(program)
        return type(kernel)(kernel.text.replace("fn main(", "fn main((", is_second), *list(msgspec_fields(kernel))[1:])

    monkeypatch.setattr(launches, "emit_wgsl", broken)
    before = backend().metrics()
    with pytest.raises(KernelCompileFailed, match="in segment 1 of 'cut'"):
        backend().compile(parse(CUT), DispatchConfig(optimize=False))
    assert backend().metrics() == before


def msgspec_fields(struct: Any) -> Iterator[Any]:
    return (getattr(struct, name) for name in struct.__struct_fields__)


def test_memory_that_there_is_not_is_named() -> None:
    before = telemetry.snapshot().resident_bytes
    with pytest.raises(DeviceOutOfMemory) as caught:
        backend().allocate(1 << 45)
    assert caught.value.requested == 1 << 45
    assert caught.value.available == backend().gpu.buffer_bytes
    assert telemetry.snapshot().resident_bytes == before


# Memory is refused by a limit on the process; the last line tells that the device is still good.
SHORT_OF_MEMORY = """
import resource
from vyre.backends.webgpu import WebGpuBackend
from vyre.driver import telemetry
from vyre.driver.config import DispatchConfig
from vyre.errors import DeviceOutOfMemory
from vyre.ir import parse

program = parse("program ones(workgroup 64) { buffer 0 out: u32[] output\\n out[gid.x] = 1 }")
on = WebGpuBackend()
on.dispatch(program, [], DispatchConfig(dispatch_elements=64))
held = on.allocate(100 << 20)
used = next(line for line in open("/proc/self/status") if line.startswith("VmSize"))
resource.setrlimit(resource.RLIMIT_AS, ((int(used.split()[1]) << 10) + (64 << 20), resource.RLIM_INFINITY))
for attempt in (
    lambda: on.allocate(1 << 30),
    lambda: on.allocate_many([16 << 20] * 40),
    lambda: on.dispatch(program, [], DispatchConfig(dispatch_elements=30 << 20)),
    lambda: on.download(held),
):
    try:
        attempt()
    except DeviceOutOfMemory as error:
        assert error.requested > 1 << 20 and "Fix:" in str(error)
        print("named", telemetry.snapshot().resident_bytes >> 20)
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(bytes(on.dispatch(program, [], DispatchConfig(dispatch_elements=1))[0]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")
def test_memory_that_the_driver_cannot_get_is_named_and_nothing_is_lost() -> None:
    if not backend().gpu.facts.is_software:
        pytest.skip("the memory of a GPU is not the process's")
    done = subprocess.run([sys.executable, "-c", SHORT_OF_MEMORY], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["named 100"] * 4 + [repr(b"\1\0\0\0")], done.stderr


def test_a_run_that_takes_too_long_ends_for_its_caller(own: WebGpuBackend) -> None:
    program = parse(LONG)
    with pytest.raises(Timeout):
        own.dispatch(program, [np.arange(1 << 15, dtype="<u4")], DispatchConfig(timeout_s=0.05))
    assert not own.device_lost()
    (out,) = own.dispatch(increment(), [np.array([1], "<u4")], DispatchConfig(timeout_s=60.0))
    assert np.frombuffer(out, "<u4").tolist() == [2]


IN_STEP = """
program in_step(workgroup 4) {
  buffer 0 out: u32[4] readwrite
  if gid.x == 3 { return }
  let k = wg.x
  while k < 4096 {
    k = k & 1023
    barrier
  }
  out[gid.x] = k
}
"""


@pytest.mark.parametrize("text", [ENDLESS, IN_STEP])
def test_a_driver_that_ends_loops_by_itself_is_found_out(text: str) -> None:
    if not backend().gpu.ends_loops:
        pytest.skip("loops of this device end when they should, and this one never does")
    before = np.arange(4, dtype="<u4")
    into = OutputBuffers([bytearray(b"as it was")])
    with pytest.raises(DispatchFailed, match="ended a loop before its time") as caught:
        backend().dispatch(parse(text), [before], into=into)
    assert caught.value.code == "loop-limit"
    assert bytes(into[0]) == b"as it was"
    with backend().allocate(16) as out:
        backend().upload(out, before)
        with pytest.raises(DispatchFailed, match="ended a loop"):
            backend().run_sequence([Step(parse(text), [out])])


def test_loops_and_divisions_as_long_as_they_may_be_are_right() -> None:
    text = """
    program sums(workgroup 4) {
      buffer 0 a: u64[] read
      buffer 1 out: u64[4] output
      let s = 0u64
      for k in 0 .. 32768 { s = s + (a[gid.x] + u64(k)) / (a[gid.x] % 97u64 + 1u64) }
      out[gid.x] = s
    }
    """
    data = np.array([1, 1 << 40, (1 << 64) - 1, 12345678901234], "<u8")
    wanted = [sum(((int(a) + k) % (1 << 64)) // (int(a) % 97 + 1) for k in range(32768)) % (1 << 64) for a in data]
    (out,) = backend().dispatch(parse(text), [data])
    assert np.frombuffer(out, "<u8").tolist() == wanted


def test_after_shutdown_the_device_is_gone(own: WebGpuBackend) -> None:
    own.shutdown()
    with pytest.raises(DeviceLost, match="shut down"):
        own.dispatch(increment(), [np.zeros(1, "<u4")])


def test_this_device_is_exact_or_says_that_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = backend().gpu
    left, right = probe.samples()
    found = probe.measured(gpu, left, right)
    assert backend().capabilities.float_exact is bool(np.array_equal(found, probe.expected(left, right)))
    off = found.copy()
    off[100, 3] ^= 1
    monkeypatch.setattr(probe, "measured", lambda *_: off)
    assert not probe.is_float_exact(gpu)


def test_a_missing_package_is_told_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapters, "find_spec", lambda _: None)
    info = next(one for one in list_backends() if one.name == "webgpu")
    assert not info.available
    assert "pip install wgpu" in info.fix
    with pytest.raises(BackendUnavailable, match="pip install wgpu"):
        vyre.backend("webgpu")


@pytest.mark.skipif(sys.platform != "linux", reason="Vulkan's driver files are Linux's")
def test_a_missing_driver_is_told_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VK_DRIVER_FILES", "/nowhere/driver.json")
    info = next(one for one in list_backends() if one.name == "webgpu")
    assert not info.available
    assert "mesa-vulkan-drivers" in info.fix


def test_an_adapter_that_is_not_there_is_named() -> None:
    backend()
    with pytest.raises(BackendUnavailable, match="no adapter here is called 'antique'"):
        WebGpuBackend(adapter="antique").prepare()


def test_neither_the_package_nor_the_list_of_backends_loads_wgpu_without_a_gpu() -> None:
    code = "import sys, vyre; vyre.parse if hasattr(vyre, 'parse') else None; print('wgpu' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_software_is_never_chosen_before_the_processor() -> None:
    if backend().gpu.facts.is_software:
        assert next(one for one in list_backends() if one.is_default).name == "cpu"
