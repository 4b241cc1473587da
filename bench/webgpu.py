"""Speed of WebGPU under vyre beside plain wgpu: kernels by hand, copies, and steps one at a time.

Each figure is the least of many short repetitions, the two sides in turn. Run by ``make bench-webgpu``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from vyre.backends.webgpu import WebGpuBackend
from vyre.backends.webgpu.device import WebGpuDevice
from vyre.driver import Backend, Step, Unchanged, telemetry
from vyre.ir import parse
from vyre.ir.program import Program
from vyre.lower.schedule import LaunchSchedule

HEAD = """
@group(0) @binding(0) var<storage, read> a: array<{t}>;
@group(0) @binding(1) var<storage, read_write> b: array<{t}>;
"""

SAXPY = """
program saxpy(workgroup 256) {
  buffer 0 a: f32[] read
  buffer 1 b: f32[] readwrite
  if gid.x < len(b) { b[gid.x] = 2.5 * a[gid.x] + b[gid.x] }
}
"""
SAXPY_BY_HAND = """
@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
  if (gid.x < arrayLength(&b)) { b[gid.x] = 2.5 * a[gid.x] + b[gid.x]; }
}
"""

SUMS = """
program sums(workgroup 256) {
  buffer 0 a: u32[] read
  buffer 1 b: u32[] readwrite
  buffer 0 tile: u32[256] workgroup
  tile[lid.x] = a[gid.x]
  barrier
  let width = 128
  while width > 0 {
    if lid.x < width { tile[lid.x] = tile[lid.x] + tile[lid.x + width] }
    barrier
    width = width >> 1
  }
  if lid.x == 0 { b[wg.x] = tile[0] }
}
"""
SUMS_BY_HAND = """
var<workgroup> tile: array<u32, 256>;
@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>,
        @builtin(workgroup_id) wg: vec3<u32>) {
  tile[lid.x] = a[gid.x];
  workgroupBarrier();
  for (var width = 128u; width > 0u; width >>= 1u) {
    if (lid.x < width) { tile[lid.x] = tile[lid.x] + tile[lid.x + width]; }
    workgroupBarrier();
  }
  if (lid.x == 0u) { b[wg.x] = tile[0]; }
}
"""

HASH = """
program hash(workgroup 256) {
  buffer 0 a: u32[] read
  buffer 1 b: u32[] readwrite
  if gid.x < len(b) {
    let x = a[gid.x]
    for k in 0 .. 64 {
      x = (x ^ x >> 16) * 0x7feb352d
      x = (x ^ x >> 15) * 0x846ca68b
      x = x ^ x >> 16
    }
    b[gid.x] = x
  }
}
"""
HASH_BY_HAND = """
@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
  if (gid.x >= arrayLength(&b)) { return; }
  var x = a[gid.x];
  for (var k = 0u; k < 64u; k++) {
    x = (x ^ (x >> 16u)) * 0x7feb352du;
    x = (x ^ (x >> 15u)) * 0x846ca68bu;
    x = x ^ (x >> 16u);
  }
  b[gid.x] = x;
}
"""

LOGISTIC = """
program logistic(workgroup 256) {
  buffer 0 a: f32[] read
  buffer 1 b: f32[] readwrite
  if gid.x < len(b) {
    let x = a[gid.x]
    for k in 0 .. 64 { x = 3.75 * x * (1.0 - x) }
    b[gid.x] = x
  }
}
"""
LOGISTIC_BY_HAND = """
@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
  if (gid.x >= arrayLength(&b)) { return; }
  var x = a[gid.x];
  for (var k = 0u; k < 64u; k++) { x = 3.75 * x * (1.0 - x); }
  b[gid.x] = x;
}
"""

ADD = "program add(workgroup 64) { buffer 0 a: u32[] readwrite\n if gid.x < len(a) { a[gid.x] = a[gid.x] + 1 } }"
LOOP = """
program loop(workgroup 64) {
  buffer 0 left: u32[1] readwrite
  buffer 1 a: u32[] readwrite
  while left[0] > 0 {
    grid_sync
    a[gid.x] = a[gid.x] + 1
    if gid.x == 0 { left[0] = left[0] - 1 }
    grid_sync
  }
}
"""
COUNTED = """
program counted(workgroup 64) {
  buffer 0 counts: u32[3] read
  buffer 1 a: u32[] readwrite
  indirect_dispatch(counts, 0)
  if gid.x < len(a) { a[gid.x] = a[gid.x] + 1 }
}
"""
DOWN = "program down(workgroup 64) { buffer 0 a: u32[] readwrite\n if a[gid.x] > 0 { a[gid.x] = a[gid.x] - 1 } }"


def least(sides: list[Callable[[], object]], repetitions: int) -> list[float]:
    """The least time of each side, taken in turn."""
    best = [math.inf] * len(sides)
    for side in sides:
        side()
    for _ in range(repetitions):
        for number, side in enumerate(sides):
            start = perf_counter()
            side()
            best[number] = min(best[number], perf_counter() - start)
    return best


class ByHand:
    """A kernel written for wgpu alone, on the same device."""

    def __init__(self, on: WebGpuBackend, text: str, dtype: str, data: list[Any]) -> None:
        import wgpu

        device = on.gpu.device
        usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC
        self.device, self.data = device, data
        self.buffers = [device.create_buffer_with_data(data=array, usage=usage) for array in data]
        module = device.create_shader_module(code=HEAD.format(t=dtype) + text)
        compute = {"module": module, "entry_point": "main"}
        self.pipeline = device.create_compute_pipeline(layout="auto", compute=compute)
        entries = [{"binding": k, "resource": {"buffer": b}} for k, b in enumerate(self.buffers)]
        self.group = device.create_bind_group(layout=self.pipeline.get_bind_group_layout(0), entries=entries)

    def run(self, groups: int, times: int) -> None:
        encoder = self.device.create_command_encoder()
        compute = encoder.begin_compute_pass()
        compute.set_pipeline(self.pipeline)
        compute.set_bind_group(0, self.group)
        for _ in range(times):
            compute.dispatch_workgroups(groups)
        compute.end()
        self.device.queue.submit([encoder.finish()])
        self.device.queue.read_buffer(self.buffers[1], 0, 4)

    def result(self) -> bytes:
        return bytes(self.device.queue.read_buffer(self.buffers[1]))


def kernels(on: WebGpuBackend, count: int, times: int) -> None:
    print(f"\nkernels, {count:,} elements: vyre against WGSL by hand")
    for name, text, hand, dtype in (
        ("saxpy", SAXPY, SAXPY_BY_HAND, "f32"),
        ("sums of blocks", SUMS, SUMS_BY_HAND, "u32"),
        ("integer hash", HASH, HASH_BY_HAND, "u32"),
        ("logistic map (floats alone)", LOGISTIC, LOGISTIC_BY_HAND, "f32"),
    ):
        storage = np.dtype(f"<{dtype[0]}4")
        a = (np.arange(count) % 1000 / 1000).astype(storage) if dtype == "f32" else np.arange(count, dtype=storage)
        b = np.ones(count, storage)
        other = ByHand(on, hand, dtype, [a, b])
        program: Program = parse(text)
        with on.allocate(a.nbytes) as left, on.allocate(b.nbytes) as right:
            on.upload_many([(left, 0, a), (right, 0, b)])
            groups = -(-count // 256)
            step = Step(program, [left, right], grid_override=(groups,))
            once = on.prepare_sequence([step])
            once.run()
            other.run(groups, 1)
            same = bytes(on.download(right)) == other.result()
            sequence = on.prepare_sequence(repeat=[step], times=times)
            ours, theirs = least([sequence.run, lambda o=other, g=groups: o.run(g, times)], 12)
        took = f"{1e3 * ours / times:8.3f} ms  {1e3 * theirs / times:8.3f} ms  {ours / theirs:5.2f}x"
        print(f"  {name:<28} {took}  same bytes: {same}")


def steps(on: WebGpuBackend, count: int) -> None:
    program, data = parse(ADD), np.zeros(256, "<u4")
    with on.allocate(data.nbytes) as state:
        on.upload(state, data)
        together = on.prepare_sequence(repeat=[Step(program, [state])], times=count, reads=[state])

        def one_by_one() -> None:
            for _ in range(count):
                on.dispatch_resident(program, [state])
                on.download(state)

        sequence, separate = least([together.run, one_by_one], 3)
    print(f"\n{count:,} small steps: {1e3 * sequence:.1f} ms as one sequence, {1e3 * separate:.1f} ms one by one, each "
          f"read back: {separate / sequence:.1f}x")  # fmt: skip


def fixpoint(on: WebGpuBackend, passes: int) -> None:
    data = np.full(256, passes, "<u4")
    with on.allocate(data.nbytes) as state:
        before = on.metrics()["readbacks"]
        on.upload(state, data)
        start = perf_counter()
        result = on.run_sequence(repeat=[Step(parse(DOWN), [state])], times=1 << 20, until=Unchanged([state]))
        seconds = perf_counter() - start
        asked = on.metrics()["readbacks"] - before
    print(f"fixpoint: {result.passes} passes, {asked} questions to the device, {1e3 * seconds:.1f} ms")


class HostDriven(WebGpuDevice):
    """A device that leaves every schedule to the driver's loop, which reads the control word after each segment."""

    def prepare_schedule(self, schedule: LaunchSchedule) -> None:  # noqa: ARG002
        return None


def barriers(on: WebGpuBackend, passes: int) -> None:
    """A loop with two grid barriers in it, driven by the device, and by the host."""
    program, data = parse(LOOP), np.zeros(256, "<u4")
    took: list[str] = []
    inputs = [np.array([passes], "<u4"), data]
    for one in (on, Backend(HostDriven())):
        one.dispatch(program, inputs)
        before = telemetry.snapshot()
        (seconds,) = least([lambda w=one: w.dispatch(program, inputs)], 2)
        after = telemetry.snapshot()
        segments = (after.grid_sync_segments - before.grid_sync_segments) // 3
        asked = (after.grid_sync_decisions - before.grid_sync_decisions) // 3
        took.append(f"{segments} segments, {asked} questions, {1e3 * seconds:.1f} ms")
    print(f"grid barriers in a loop of {passes} passes: {took[0]}; driven by the host: {took[1]}")


def grids(on: WebGpuBackend, count: int) -> None:
    """Launches whose grid is in memory: one after another without the host, and with it."""
    program, data = parse(COUNTED), np.zeros(4096, "<u4")
    with on.allocate(12) as counts, on.allocate(data.nbytes) as state:
        on.upload_many([(counts, 0, np.array([64, 1, 1], "<u4")), (state, 0, data)])
        together = on.prepare_sequence(repeat=[Step(program, [counts, state])], times=count, reads=[(state, 0, 4)])
        known = Step(parse(ADD), [state], grid_override=(64,))
        plain = on.prepare_sequence(repeat=[known], times=count, reads=[(state, 0, 4)])

        def one_by_one() -> None:
            for _ in range(count):
                grid = np.frombuffer(on.download(counts), "<u4").tolist()
                on.run_sequence([Step(parse(ADD), [state], grid_override=tuple(grid))])

        device, direct, host = least([together.run, plain.run, one_by_one], 3)
    print(f"{count} grids that are in memory: {1e3 * device:.1f} ms; known before: {1e3 * direct:.1f} ms; read by the "
          f"host: {1e3 * host:.1f} ms")  # fmt: skip


def caches(on: WebGpuBackend) -> None:
    program, data = parse(ADD), [np.zeros(1000, "<u4")]
    on.dispatch(program, data)
    before, bindings = telemetry.snapshot().compile_misses, on.gpu.binding_stats().misses
    (seconds,) = least([lambda: on.dispatch(program, data)], 200)
    compiled = telemetry.snapshot().compile_misses - before
    made = on.gpu.binding_stats().misses - bindings
    print(f"a repeated dispatch: {1e6 * seconds:.0f} us, {compiled} compiled, {made} bindings made")


def copies(on: WebGpuBackend, size: int) -> None:
    import wgpu

    data, device = np.arange(size // 4, dtype="<u4"), on.gpu.device
    usage = wgpu.BufferUsage.COPY_DST | wgpu.BufferUsage.COPY_SRC
    plain = device.create_buffer(size=size, usage=usage)

    def plain_upload() -> None:
        device.queue.write_buffer(plain, 0, data)
        device.queue.read_buffer(plain, 0, 4)

    with on.allocate(size) as buffer:

        def upload() -> None:
            on.upload(buffer, data)
            on.flush()

        up, plain_up = least([upload, plain_upload], 12)
        down, plain_down = least([lambda: on.download(buffer), lambda: device.queue.read_buffer(plain)], 12)
    print(f"copies of {size >> 20} MiB: up {size / up / 1e9:.2f} GB/s ({plain_up / up:.2f} of plain wgpu), "
          f"down {size / down / 1e9:.2f} GB/s ({plain_down / down:.2f} of plain wgpu)")  # fmt: skip


def main() -> None:
    with WebGpuBackend() as on:
        profile = on.capabilities
        print(f"{profile.device}; floats {'exact' if profile.float_exact else 'not exact'}")
        steps(on, 1000)
        fixpoint(on, 500)
        barriers(on, 500)
        grids(on, 200)
        caches(on)
        copies(on, 64 << 20)
        kernels(on, 1 << 20, 4)


if __name__ == "__main__":
    main()
