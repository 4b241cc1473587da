"""Who owns the device? One object: its memory, its compiled kernels, and every call that may find it lost.

Buffers are whole words, and a little longer than asked; what lies behind the bytes that were asked for means nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from threading import RLock
from typing import Any, Final

import numpy as np

from vyre.backends.webgpu.adapters import AdapterFacts, facts_of, fixed_lanes
from vyre.backends.webgpu.tools import FILL, READ_ONLY, STATE_WORDS, tool_groups
from vyre.driver import telemetry, trace
from vyre.driver.cache import CacheStats, MemoryCache
from vyre.driver.outputs import OutputBuffers, require_slots
from vyre.emit.wgsl import ENTRY
from vyre.errors import DeviceLost, DeviceOutOfMemory, DispatchFailed, KernelCompileFailed, Timeout

_MOST_PIPELINES: Final = 1024
_MOST_BIND_GROUPS: Final = 4096
_MOST_BLOCKS: Final = 4096
# Memory that is kept for the next dispatch, and for the next readback.
_MOST_POOLED_BYTES: Final = 256 << 20
_MOST_STAGED_BYTES: Final = 256 << 20
_LEAST_BUFFER: Final = 256
FAULT_BYTES: Final = 16
# Where a binding may begin, on any device.
_BINDING_STEP: Final = 256
_WANTED_FEATURES: Final = ("timestamp-query", "subgroup")

# Bytes of a buffer: where they begin, and how many.
Region = tuple[Any, int, int]


def whole_words(byte_count: int) -> int:
    """The bytes of the words that so many bytes take; nothing is smaller than one word."""
    return max(4, -(-byte_count // 4) * 4)


class Pipeline:
    """A compiled kernel and the layout of its bindings."""

    __slots__ = ("layout", "pipeline")

    def __init__(self, pipeline: Any, layout: Any) -> None:
        self.pipeline = pipeline
        self.layout = layout


class Timer:
    """Reads the device's clock at the ends of up to ``passes`` passes."""

    passes: Final = 8

    def __init__(self, device: Any, usage: Any, period: float) -> None:
        self._queries = device.create_query_set(type="timestamp", count=2 * self.passes)
        self._resolved = device.create_buffer(size=16 * self.passes, usage=usage.QUERY_RESOLVE | usage.COPY_SRC)
        self._period = period

    @classmethod
    def of(cls, gpu: Gpu, wgpu: Any) -> Timer | None:
        """The timer of a device; None if the library does not tell how long a tick is."""
        from wgpu.backends.wgpu_native import lib

        if not hasattr(lib, "wgpuQueueGetTimestampPeriod"):
            return None
        return cls(gpu.device, wgpu.BufferUsage, lib.wgpuQueueGetTimestampPeriod(gpu.queue._internal))

    def writes(self, number: int) -> dict[str, Any]:
        return {
            "query_set": self._queries,
            "beginning_of_pass_write_index": 2 * number,
            "end_of_pass_write_index": 2 * number + 1,
        }

    def resolve(self, encoder: Any, count: int) -> Region:
        """Makes the times of so many passes readable; gives where."""
        encoder.resolve_query_set(self._queries, 0, 2 * count, self._resolved, 0)
        return self._resolved, 0, 16 * count

    def nanoseconds(self, times: memoryview) -> int:
        ticks = np.frombuffer(times, "<i8").reshape(-1, 2)
        return int((ticks[:, 1] - ticks[:, 0]).sum() * self._period)


class Gpu:
    """A device under one lock. Whatever fails in it is raised as one of vyre's errors."""

    def __init__(self, adapter: Any) -> None:
        import wgpu

        self._wgpu = wgpu
        self.facts: AdapterFacts = facts_of(adapter)
        self.limits: dict[str, int] = dict(adapter.limits)
        features = [name for name in _WANTED_FEATURES if name in adapter.features]
        self.device = adapter.request_device_sync(required_features=features, required_limits=self.limits)
        self.queue = self.device.queue
        self.lock = RLock()
        self.lost_reason: str | None = None
        self.timer = Timer.of(self, wgpu) if "timestamp-query" in features else None
        self.binding_bytes = self.limits["max-storage-buffer-binding-size"]
        self.most_buffers = self.limits["max-storage-buffers-per-shader-stage"]
        self.buffer_bytes = self.limits["max-buffer-size"] // 16 * 16
        usage = wgpu.BufferUsage
        self._memory_usage = usage.STORAGE | usage.COPY_SRC | usage.COPY_DST | usage.INDIRECT
        self._block_usage = usage.UNIFORM | usage.COPY_DST | usage.STORAGE
        self._staging_usage = usage.MAP_READ | usage.COPY_DST
        self._pipelines: MemoryCache[Pipeline] = MemoryCache(_MOST_PIPELINES)
        self._bind_groups: MemoryCache[tuple[Any, Sequence[Any]]] = MemoryCache(_MOST_BIND_GROUPS)
        self._blocks: MemoryCache[Any] = MemoryCache(_MOST_BLOCKS)
        self._tools: dict[str, Pipeline] = {}
        self._layouts: dict[tuple[bool, ...], tuple[Any, Any]] = {}
        self._pool: dict[int, list[Any]] = {}
        self._pooled = 0
        self._staging: list[Any] = []
        self._waiter: ThreadPoolExecutor | None = None
        # The lanes of every subgroup, if they are always as many.
        self.fixed_lanes = fixed_lanes(adapter) if "subgroup" in features else None
        # Who opens the device finds out whether it ends loops by itself, and the lanes of subgroups to be trusted.
        self.ends_loops = False
        self.native_lanes: int | None = None
        # Where kernels tell what went wrong: whether a loop was ended, and a grid that cannot be launched.
        self.faults = self.new_memory(FAULT_BYTES)
        # How far the run is that the device drives by itself; there is one at a time.
        self.state = self.new_memory(4 * STATE_WORDS)
        self.submissions = 0
        self.readbacks = 0

    @contextmanager
    def watched(self, requested: int = 0) -> Iterator[None]:
        """Holds the lock; what the library raises inside becomes an error of vyre's."""
        with self.lock:
            if self.lost_reason is not None:
                raise DeviceLost("webgpu", self.lost_reason)
            try:
                yield
            except (self._wgpu.GPUError, RuntimeError) as error:
                message = str(error)
                # The library calls it by this name, or tells of it with the fault of whatever needed the memory.
                if isinstance(error, self._wgpu.GPUOutOfMemoryError) or "Not enough memory" in message:
                    raise DeviceOutOfMemory(requested) from error
                if "device is lost" in message.lower() or "PollThread" in message:
                    self.lost_reason = "the driver gave it up, or it was destroyed"
                    raise DeviceLost("webgpu", self.lost_reason) from error
                raise DispatchFailed(
                    f"the device refused a call: {_last_line(message)}.",
                    "report it with the program; until it is mended, run the program on another backend.",
                    code="device-refused",
                ) from error

    def new_memory(self, byte_count: int) -> Any:
        """Memory on the device for that many bytes."""
        size = -(-max(byte_count, 16) // 16) * 16
        if size > self.buffer_bytes:
            raise DeviceOutOfMemory(byte_count, self.buffer_bytes)
        with self.watched(byte_count):
            return self.device.create_buffer(size=size, usage=self._memory_usage)

    def block(self, words: Sequence[int]) -> Any:
        """A parameter block; equal ones are one."""
        return self._blocks.get_or_make(tuple(words), lambda: self.new_block(words))

    def new_block(self, words: Sequence[int]) -> Any:
        """A parameter block that kernels may write to."""
        data = np.zeros(-(-len(words) // 4) * 4, "<u4")
        data[: len(words)] = words
        with self.watched():
            block = self.device.create_buffer(size=data.nbytes, usage=self._block_usage)
            self.queue.write_buffer(block, 0, data)
        return block

    def take(self, byte_count: int) -> Any:
        """Memory from the pool, which may hold anything."""
        size = _pool_size(byte_count)
        with self.lock:
            kept = self._pool.get(size)
            if kept:
                self._pooled -= size
                return kept.pop()
        return self.new_memory(min(size, self.buffer_bytes) if byte_count <= self.buffer_bytes else byte_count)

    def give_back(self, buffers: Sequence[Any]) -> None:
        with self.lock:
            for buffer in buffers:
                if self.lost_reason is None and self._pooled + buffer.size <= _MOST_POOLED_BYTES:
                    self._pool.setdefault(buffer.size, []).append(buffer)
                    self._pooled += buffer.size
                else:
                    buffer.destroy()

    @contextmanager
    def borrowing(self) -> Iterator[Callable[[int], Any]]:
        """Gives memory for the time of a block; it is not used again where the device may still be working on it."""
        held: list[Any] = []

        def take(byte_count: int) -> Any:
            held.append(self.take(byte_count))
            return held[-1]

        try:
            yield take
        except (DeviceLost, Timeout):
            raise
        except BaseException:
            self.give_back(held)
            raise
        self.give_back(held)

    def write(self, buffer: Any, offset: int, data: memoryview) -> None:
        """Queues whole words of data to be written at a whole word; a last word that is not whole is filled up."""
        whole = len(data) // 4 * 4
        with self.watched(len(data)):
            if whole:
                self.queue.write_buffer(buffer, offset, data[:whole])
            if whole != len(data):
                self.queue.write_buffer(buffer, offset + whole, bytes(data[whole:]).ljust(4, b"\0"))

    def pipeline(self, text: str, read_only: tuple[bool, ...], name: str) -> Pipeline:
        """The compiled kernel of a text, whose storage buffers are read-only or not; compiled once."""
        found = self._pipelines.get(text)
        if found is not None:
            telemetry.count(compile_hits=1)
            return found
        telemetry.count(compile_misses=1)
        with trace.span("compile", "webgpu", program=name):
            found = self.compiled(text, read_only, name)
        self._pipelines.put(text, found)
        return found

    def compiled(self, text: str, read_only: tuple[bool, ...], name: str) -> Pipeline:
        """A kernel compiled now, which nobody keeps."""
        with self.watched():
            layout, pipeline_layout = self._layout(read_only)
            try:
                module = self.device.create_shader_module(code=text, label=name)
                compute = {"module": module, "entry_point": ENTRY}
                made = self.device.create_compute_pipeline(layout=pipeline_layout, compute=compute)
            except self._wgpu.GPUError as error:
                if "device is lost" in str(error).lower():
                    raise
                raise KernelCompileFailed("webgpu", _compiler_message(str(error)), text) from error
        return Pipeline(made, layout)

    def _layout(self, read_only: tuple[bool, ...]) -> tuple[Any, Any]:
        """The one form that bindings have: the parameter block, then the storage buffers."""
        found = self._layouts.get(read_only)
        if found is None:
            kinds = ["uniform", *("read-only-storage" if only else "storage" for only in read_only)]
            entries = [
                {"binding": number, "visibility": self._wgpu.ShaderStage.COMPUTE, "buffer": {"type": kind}}
                for number, kind in enumerate(kinds)
            ]
            layout = self.device.create_bind_group_layout(entries=entries)
            made = self.device.create_pipeline_layout(bind_group_layouts=[layout])
            found = self._layouts[read_only] = layout, made
        return found

    def bind_group(self, pipeline: Pipeline, block: Any, regions: Sequence[Region]) -> Any:
        """The bindings of a launch; the same ones again are found, not made."""
        key = id(pipeline), id(block), tuple([(id(buffer), offset, size) for buffer, offset, size in regions])
        found = self._bind_groups.get(key)
        if found is None:
            resources = [(block, 0, block.size), *regions]
            entries = [
                {"binding": number, "resource": {"buffer": buffer, "offset": offset, "size": size}}
                for number, (buffer, offset, size) in enumerate(resources)
            ]
            group = self.device.create_bind_group(layout=pipeline.layout, entries=entries)
            # The key names objects by identity, so the entry keeps them alive.
            found = group, (pipeline, *resources)
            self._bind_groups.put(key, found)
        return found[0]

    def windows(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """Bytes of a buffer in pieces that can be bound: where to bind, and the piece from there on."""
        most = self.binding_bytes // _BINDING_STEP * _BINDING_STEP
        while start < stop:
            first = start // most * most
            end = min(stop, first + most)
            yield first, start - first, end - first
            start = end

    def tool(self, text: str) -> Pipeline:
        """One of the backend's own kernels."""
        found = self._tools.get(text)
        if found is None:
            found = self._tools[text] = self.compiled(text, READ_ONLY[text], "tool")
        return found

    def fill_launches(self, buffer: Any, offset: int, length: int, pattern: int) -> Iterator[tuple[Any, Any, int]]:
        """Launches that set bytes to the bytes of a word: pipeline, bindings and workgroups."""
        pipeline = self.tool(FILL)
        for bound, start, stop in self.windows(offset, offset + length):
            first, last = start // 4, (stop - 1) // 4
            head = 0xFFFFFFFF << 8 * (start % 4) & 0xFFFFFFFF
            tail = 0xFFFFFFFF >> 8 * (3 - (stop - 1) % 4)
            block = self.block([first, last - first + 1, pattern, head, tail])
            group = self.bind_group(pipeline, block, [(buffer, bound, whole_words(stop))])
            yield pipeline.pipeline, group, tool_groups(last - first + 1)

    def fill(self, patches: Sequence[tuple[Any, int, int, int]]) -> None:
        """Queues fills of bytes (buffer, offset, length) with the bytes of a word."""
        patches = [patch for patch in patches if patch[2]]
        if not patches:
            return
        encoder = self.device.create_command_encoder()
        for buffer, offset, length, pattern in patches:
            if pattern == 0 and offset % 4 == 0 and length % 4 == 0:
                encoder.clear_buffer(buffer, offset, length)
                continue
            for pipeline, group, groups in self.fill_launches(buffer, offset, length, pattern):
                compute = encoder.begin_compute_pass()
                compute.set_pipeline(pipeline)
                compute.set_bind_group(0, group)
                compute.dispatch_workgroups(groups)
                compute.end()
        self.submit(encoder)

    def upload(self, buffer: Any, offset: int, data: memoryview, end: int) -> Iterator[tuple[Any, int, int, int]]:
        """Queues the whole words of data that begin anywhere; gives the bytes around them as fills.

        Behind ``end`` nothing of the buffer means anything, so a word that reaches over it is written whole.
        """
        head = min(-offset % 4, len(data))
        whole = (len(data) - head) // 4 * 4
        if offset + len(data) == end:
            whole = len(data) - head
        if whole:
            self.write(buffer, offset + head, data[head : head + whole])
        for start, stop in ((0, head), (head + whole, len(data))):
            if start < stop:
                at = (offset + start) % 4
                word = int.from_bytes(bytes(data[start:stop]), "little") << 8 * at
                yield buffer, offset + start, stop - start, word

    def read_into(self, encoder: Any, regions: Sequence[Region], into: OutputBuffers | None) -> Any:
        """Reads regions into the caller's slots, or into new memory."""
        require_slots(into)
        if into is not None:
            return self.read(encoder, regions, into.store)
        return self.read(encoder, regions, lambda views: [memoryview(bytearray(view)) for view in views])

    def submit(self, encoder: Any) -> None:
        self.queue.submit([encoder.finish()])
        self.submissions += 1

    def wait(self, timeout_s: float | None = None) -> None:
        """Waits until the device has done everything that was submitted."""
        with self.watched():
            self.read(self.device.create_command_encoder(), [(self.faults, 0, 4)], len, timeout_s)

    def _await(self, promise: Any, timeout_s: float | None) -> None:
        if timeout_s is None:
            promise.sync_wait()
            return
        if self._waiter is None:
            self._waiter = ThreadPoolExecutor(4, thread_name_prefix="vyre-webgpu-wait")
        try:
            self._waiter.submit(promise.sync_wait).result(timeout_s)
        except FutureTimeout:
            raise Timeout(timeout_s) from None

    def read(
        self,
        encoder: Any,
        ranges: Sequence[Region],
        use: Callable[[list[memoryview]], Any],
        timeout_s: float | None = None,
    ) -> Any:
        """Submits the encoder, and behind it the reading of ranges (buffer, offset, length) in one synchronisation.

        ``use`` is given views of the bytes, which hold only while it runs; what it gives is the answer.
        """
        spans: list[tuple[int, int, int]] = []
        copies: list[tuple[Any, int, int, int]] = []
        end = 0
        for buffer, offset, length in ranges:
            start, size = offset // 4 * 4, whole_words(offset % 4 + length)
            spans.append((end, offset - start, length))
            if length:
                copies.append((buffer, start, end, size))
                end += -(-size // 8) * 8
        if not copies and timeout_s is None:
            self.submit(encoder)
            return use([memoryview(b"")] * len(spans))
        if not copies:
            # Something has to be read, to know when everything before it has ended.
            copies.append((self.faults, 0, 0, FAULT_BYTES))
            end = FAULT_BYTES
        staging = self._take_staging(end)
        for buffer, start, place, size in copies:
            encoder.copy_buffer_to_buffer(buffer, start, staging, place, size)
        self.submit(encoder)
        self.readbacks += 1
        with trace.span("wait", "webgpu"):
            self._await(staging.map_async("READ_NOSYNC", 0, end), timeout_s)
        view = staging.read_mapped(0, end, copy=False)
        try:
            return use([view[at + skip : at + skip + length] for at, skip, length in spans])
        finally:
            staging.unmap()
            self._keep_staging(staging)

    def _take_staging(self, size: int) -> Any:
        fitting = [buffer for buffer in self._staging if buffer.size >= size]
        if fitting:
            chosen = min(fitting, key=lambda buffer: buffer.size)
            self._staging.remove(chosen)
            return chosen
        with self.watched(size):
            return self.device.create_buffer(size=_pool_size(size), usage=self._staging_usage)

    def _keep_staging(self, buffer: Any) -> None:
        self._staging.append(buffer)
        while sum(kept.size for kept in self._staging) > _MOST_STAGED_BYTES:
            self._staging.pop(0).destroy()

    def close(self) -> None:
        with self.lock:
            self.lost_reason = self.lost_reason or "the backend was shut down"
            self._bind_groups.clear()
            self._pipelines.clear()
            self._pool.clear()
            self._staging.clear()
            self.device.destroy()

    def binding_stats(self) -> CacheStats:
        return self._bind_groups.stats()

    def cache_stats(self) -> CacheStats:
        return self._pipelines.stats()


def _pool_size(byte_count: int) -> int:
    """Sizes of memory that is used again: powers of two, and above a mebibyte whole mebibytes."""
    if byte_count <= 1 << 20:
        return max(_LEAST_BUFFER, 1 << (byte_count - 1).bit_length())
    return -(-byte_count // (1 << 20)) << 20


def _last_line(message: str) -> str:
    return next((line.strip() for line in reversed(message.splitlines()) if line.strip()), "no reason given").rstrip(
        "."
    )


def _compiler_message(message: str) -> str:
    """What the compiler said, with the line and its place, without the library's own heading."""
    _, _, said = message.partition("In wgpu")
    return "\n".join(said.splitlines()[1:]).strip() or message.strip()
