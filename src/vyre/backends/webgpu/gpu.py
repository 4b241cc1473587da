"""The open WebGPU device: its memory, its compiled kernels, and every call that may find it lost.

Buffers are whole words, and a little longer than asked; bytes behind the length that was asked for have no meaning.

A caller may stop waiting for a run before it ends: at its deadline, or by KeyboardInterrupt. The device goes on with
what was submitted, and meanwhile the library blocks, deaf to signals, in every call that submits or destroys. So
nothing is submitted until that run has ended, and memory that is freed before is destroyed then.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager, suppress
from threading import RLock
from typing import Any, Final

import numpy as np

from vyre.backends.webgpu.adapters import AdapterFacts, facts_of, fixed_lanes
from vyre.backends.webgpu.tools import FILL, STATE_WORDS, tool_groups
from vyre.backends.webgpu.work import Pipeline, Region, Work, encode, storage_access, whole_words
from vyre.driver import telemetry, trace
from vyre.driver.device import UNLIMITED, RunOptions
from vyre.driver.memory_cache import CacheStats, MemoryCache
from vyre.emit.wgsl import ENTRY
from vyre.errors import DeviceLost, DeviceOutOfMemory, DispatchFailed, KernelCompileFailed

_MOST_PIPELINES: Final = 1024
_MOST_BIND_GROUPS: Final = 4096
_MOST_BLOCKS: Final = 4096
# Staging memory that is kept for the next readback.
_MOST_STAGED_BYTES: Final = 256 << 20
_LEAST_STAGED_BYTES: Final = 256
# Freed memory that may wait for its end before allocating waits for the device.
_MOST_RETIRED_BYTES: Final = 256 << 20
# Fills that wait for the next submission.
_MOST_FILLS: Final = 256
# The library's waits are waits of threading.Event, which signals interrupt everywhere but on Windows.
_SIGNALS_INTERRUPT_WAITS: Final = sys.platform != "win32"
_LONGEST_WAIT_S: Final = 0.1
FAULT_BYTES: Final = 16
# Where a binding may begin, on any device.
_BINDING_STEP: Final = 256
_WANTED_FEATURES: Final = ("timestamp-query", "subgroup")

# A fill: buffer, offset, length, and the word whose bytes it repeats.
WordFill = tuple[Any, int, int, int]


class Readback:
    """Staging memory that is being mapped: the library's promise, and the helper thread's wait for it, if any."""

    __slots__ = ("promise", "waiting")

    def __init__(self, promise: Any) -> None:
        self.promise = promise
        self.waiting: Future[Any] | None = None


class Timer:
    """Reads the device's clock at the ends of up to ``passes`` passes, the most that one submission has."""

    passes: Final = 2

    def __init__(self, device: Any, usage: Any, period: float) -> None:
        self._queries = device.create_query_set(type="timestamp", count=2 * self.passes)
        self._resolved = device.create_buffer(size=16 * self.passes, usage=usage.QUERY_RESOLVE | usage.COPY_SRC)
        self._period = period

    @classmethod
    def of(cls, gpu: Gpu, wgpu: Any) -> Timer | None:
        """The timer of a device; None if the library does not report the length of a tick."""
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
        """Resolve the times of ``count`` passes into memory, and return the region."""
        encoder.resolve_query_set(self._queries, 0, 2 * count, self._resolved, 0)
        return self._resolved, 0, 16 * count

    def nanoseconds(self, times: memoryview) -> int:
        ticks = np.frombuffer(times, "<i8").reshape(-1, 2)
        return int((ticks[:, 1] - ticks[:, 0]).sum() * self._period)


class Gpu:
    """A device under one lock. Every failure in it is raised as one of vyre's errors."""

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
        self._layouts: dict[tuple[str, ...], tuple[Any, Any]] = {}
        self._staging: list[Any] = []
        self._waiter: ThreadPoolExecutor | None = None
        # Fills that are to run before the next submission.
        self._fills: list[WordFill] = []
        # The readback of a run that has not ended although its caller stopped waiting.
        self._unfinished: Readback | None = None
        # Memory that was freed while that run may still use it.
        self._retired: list[Any] = []
        # The lanes of every subgroup, if all subgroups have the same number.
        self.fixed_lanes = fixed_lanes(adapter) if "subgroup" in features else None
        # Set by probes, after the device is open: whether it ends loops by itself, and the lanes of subgroups that give
        # the right results.
        self.ends_loops = False
        self.native_lanes: int | None = None
        # Faults that kernels report: whether a loop was ended, and a grid that cannot be launched.
        self.faults = self.new_memory(FAULT_BYTES)
        # The state of the run that the device drives by itself; there is one at a time.
        self.state = self.new_memory(4 * STATE_WORDS)
        self.submissions = 0
        self.readbacks = 0

    @contextmanager
    def watched(self, requested: int = 0) -> Iterator[None]:
        """Hold the lock, and raise the library's errors as vyre's."""
        with self.lock:
            if self.lost_reason is not None:
                raise DeviceLost("webgpu", self.lost_reason)
            try:
                yield
            except (self._wgpu.GPUError, RuntimeError) as error:
                message = str(error)
                # The library has a class for this, but also reports it with the failure of the call that needed memory.
                if isinstance(error, self._wgpu.GPUOutOfMemoryError) or "Not enough memory" in message:
                    raise DeviceOutOfMemory(requested) from error
                if "device is lost" in message.lower() or "PollThread" in message:
                    self.lost_reason = "the driver gave it up, or it was destroyed"
                    raise DeviceLost("webgpu", self.lost_reason) from error
                raise DispatchFailed(
                    f"the device refused a call: {_last_line(message)}.",
                    "report it with the program; until it is fixed, run the program on another backend.",
                    code="device-refused",
                ) from error

    def new_memory(self, byte_count: int) -> Any:
        """Return new memory on the device."""
        size = -(-max(byte_count, 16) // 16) * 16
        if size > self.buffer_bytes:
            raise DeviceOutOfMemory(byte_count, self.buffer_bytes)
        with self.watched(byte_count):
            if sum(buffer.size for buffer in self._retired) > _MOST_RETIRED_BYTES:
                self._catch_up(UNLIMITED)
            return self.device.create_buffer(size=size, usage=self._memory_usage)

    def free(self, buffer: Any) -> None:
        """Destroy memory, or, if a run that may use it has not ended, have it destroyed when that has."""
        with self.lock:
            if self._fills:
                self._fills = [fill for fill in self._fills if fill[0] is not buffer]
            if self._unfinished is None:
                buffer.destroy()
            else:
                self._retired.append(buffer)

    def block(self, words: Sequence[int]) -> Any:
        """Return a parameter block, the same one for equal words."""
        return self._blocks.get_or_make(tuple(words), lambda: self.new_block(words))

    def new_block(self, words: Sequence[int]) -> Any:
        """Return a parameter block of its own, which kernels may write to."""
        data = np.zeros(-(-len(words) // 4) * 4, "<u4")
        data[: len(words)] = words
        with self.watched():
            block = self.device.create_buffer(size=data.nbytes, usage=self._block_usage)
            self.queue.write_buffer(block, 0, data)
        return block

    def write(self, buffer: Any, offset: int, data: memoryview) -> None:
        """Write whole words at a whole word, before the next submission; a last partial word is padded with zeros."""
        whole = len(data) // 4 * 4
        with self.watched(len(data)):
            if any(fill[0] is buffer for fill in self._fills):
                # Written bytes would come before the fills, which were asked for first.
                self.submit_fills()
            if whole:
                self.queue.write_buffer(buffer, offset, data[:whole])
            if whole != len(data):
                self.queue.write_buffer(buffer, offset + whole, bytes(data[whole:]).ljust(4, b"\0"))

    def pipeline(self, text: str, name: str) -> Pipeline:
        """Return the compiled kernel of a text, compiled once."""
        found = self._pipelines.get(text)
        if found is not None:
            telemetry.count(compile_hits=1)
            return found
        telemetry.count(compile_misses=1)
        with trace.span("compile", "webgpu", program=name):
            found = self.compiled(text, name)
        self._pipelines.put(text, found)
        return found

    def compiled(self, text: str, name: str) -> Pipeline:
        """Compile a kernel, without the cache."""
        with self.watched():
            layout, pipeline_layout = self._layout(storage_access(text))
            try:
                module = self.device.create_shader_module(code=text, label=name)
                compute = {"module": module, "entry_point": ENTRY}
                made = self.device.create_compute_pipeline(layout=pipeline_layout, compute=compute)
            except self._wgpu.GPUError as error:
                if "device is lost" in str(error).lower():
                    raise
                raise KernelCompileFailed("webgpu", _compiler_message(str(error)), text) from error
        return Pipeline(made, layout)

    def _layout(self, access: tuple[str, ...]) -> tuple[Any, Any]:
        """Return the binding layout of all kernels: the parameter block, then the storage buffers."""
        found = self._layouts.get(access)
        if found is None:
            kinds = ["uniform", *("read-only-storage" if one == "read" else "storage" for one in access)]
            entries = [
                {"binding": number, "visibility": self._wgpu.ShaderStage.COMPUTE, "buffer": {"type": kind}}
                for number, kind in enumerate(kinds)
            ]
            layout = self.device.create_bind_group_layout(entries=entries)
            made = self.device.create_pipeline_layout(bind_group_layouts=[layout])
            found = self._layouts[access] = layout, made
        return found

    def bind_group(self, pipeline: Pipeline, block: Any, regions: Sequence[Region]) -> Any:
        """Return the bindings of a launch, made once for the same buffers."""
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
        """Yield a range of bytes in pieces that can be bound: where to bind, and the range from there on."""
        most = self.binding_bytes // _BINDING_STEP * _BINDING_STEP
        while start < stop:
            first = start // most * most
            end = min(stop, first + most)
            yield first, start - first, end - first
            start = end

    def tool_work(self, text: str, words: Sequence[int], regions: Sequence[Region], count: int = 1) -> Work:
        """Return the dispatch of one of the backend's own kernels, with parameters ``words``, over ``count`` words."""
        pipeline = self._tools.get(text)
        if pipeline is None:
            pipeline = self._tools[text] = self.compiled(text, "tool")
        group = self.bind_group(pipeline, self.block(words), regions)
        return Work(pipeline, group, (tool_groups(count), 1, 1))

    def fill_works(self, buffer: Any, offset: int, length: int, pattern: int) -> Iterator[Work]:
        """Yield the dispatches of a fill."""
        for bound, start, stop in self.windows(offset, offset + length):
            first, last = start // 4, (stop - 1) // 4
            head = 0xFFFFFFFF << 8 * (start % 4) & 0xFFFFFFFF
            tail = 0xFFFFFFFF >> 8 * (3 - (stop - 1) % 4)
            count = last - first + 1
            region = buffer, bound, whole_words(stop)
            yield self.tool_work(FILL, [first, count, pattern, head, tail], [region], count)

    def encode_fill(self, encoder: Any, buffer: Any, offset: int, length: int, pattern: int) -> None:
        """Encode a fill; a kernel, which takes longer, writes only what is not whole words of zeros."""
        cleared = length // 4 * 4 if pattern == 0 and offset % 4 == 0 else 0
        if cleared:
            encoder.clear_buffer(buffer, offset, cleared)
        if cleared != length:
            rest = self.fill_works(buffer, offset + cleared, length - cleared, pattern)
            encode(encoder.begin_compute_pass(), rest)

    def fill(self, fills: Sequence[WordFill]) -> None:
        """Have memory filled before the next submission."""
        self._fills += [fill for fill in fills if fill[2]]
        if len(self._fills) > _MOST_FILLS:
            self.submit_fills()

    def submit_fills(self) -> None:
        """Submit the fills that wait."""
        self.submit(self.device.create_command_encoder())

    def _filling(self) -> Any:
        """Return the commands of the fills that wait."""
        encoder = self.device.create_command_encoder()
        for fill in self._fills:
            self.encode_fill(encoder, *fill)
        return encoder.finish()

    def upload(self, buffer: Any, offset: int, data: memoryview, end: int) -> None:
        """Write the whole words of data at any offset, and have the bytes before and after them filled.

        Bytes of the buffer behind ``end`` have no meaning, so a word that reaches over it is written whole.
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
                self.fill([(buffer, offset + start, stop - start, word)])

    def submit(self, encoder: Any, options: RunOptions = UNLIMITED) -> None:
        """Submit the fills that wait, then the encoder's commands."""
        self._catch_up(options)
        commands = [encoder.finish()]
        if self._fills:
            commands.insert(0, self._filling())
            self._fills = []
        self.queue.submit(commands)
        self.submissions += 1

    def wait(self) -> None:
        """Wait until the device has ended everything that was submitted."""
        with self.watched():
            self.read(self.device.create_command_encoder(), [(self.faults, 0, 4)], len)

    def _catch_up(self, options: RunOptions) -> None:
        """Wait for the run that has not ended, if there is one, and destroy what was freed before its end."""
        if self._unfinished is None:
            return
        # Its failure concerned its own caller; a lost device fails again in the next call.
        with suppress(RuntimeError, self._wgpu.GPUError):
            self._await(self._unfinished, options)
        self._unfinished = None
        while self._retired:
            self._retired.pop().destroy()

    def _await(self, readback: Readback, options: RunOptions) -> None:
        """Wait for a readback until the deadline; signals are handled meanwhile."""
        if options.deadline is None and readback.waiting is None and _SIGNALS_INTERRUPT_WAITS:
            readback.promise.sync_wait()
            return
        if readback.waiting is None:
            if self._waiter is None:
                self._waiter = ThreadPoolExecutor(1, thread_name_prefix="vyre-webgpu-wait")
            readback.waiting = self._waiter.submit(readback.promise.sync_wait)
        while not readback.waiting.done():
            left = options.time_left()
            with suppress(FutureTimeout):
                readback.waiting.result(_LONGEST_WAIT_S if left is None else min(left, _LONGEST_WAIT_S))
        readback.waiting.result()

    def read(
        self,
        encoder: Any,
        ranges: Sequence[Region],
        use: Callable[[list[memoryview]], Any],
        options: RunOptions = UNLIMITED,
    ) -> Any:
        """Submit the encoder's commands, then read ranges (buffer, offset, length) in one synchronisation.

        Return what ``use`` makes of views of the bytes, which are valid only while it runs. Without ranges and a
        deadline, do not wait.
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
        if not copies and options.deadline is None:
            self.submit(encoder)
            return use([memoryview(b"")] * len(spans))
        if not copies:
            # A read tells when everything before it has ended.
            copies.append((self.faults, 0, 0, FAULT_BYTES))
            end = FAULT_BYTES
        staging = self._take_staging(end)
        for buffer, start, place, size in copies:
            encoder.copy_buffer_to_buffer(buffer, start, staging, place, size)
        self.submit(encoder, options)
        self.readbacks += 1
        with trace.span("wait", "webgpu"):
            self._mapped(staging, end, options)
        view = staging.read_mapped(0, end, copy=False)
        try:
            return use([view[at + skip : at + skip + length] for at, skip, length in spans])
        finally:
            staging.unmap()
            self._keep_staging(staging)

    def _mapped(self, staging: Any, end: int, options: RunOptions) -> None:
        """Wait until staging memory is mapped, which is when everything before it has ended."""
        readback = Readback(staging.map_async("READ_NOSYNC", 0, end))
        try:
            self._await(readback, options)
        except BaseException:
            self._unfinished = readback
            raise

    def _take_staging(self, size: int) -> Any:
        fitting = [buffer for buffer in self._staging if buffer.size >= size]
        if fitting:
            chosen = min(fitting, key=lambda buffer: buffer.size)
            self._staging.remove(chosen)
            return chosen
        with self.watched(size):
            return self.device.create_buffer(size=_staging_size(size), usage=self._staging_usage)

    def _keep_staging(self, buffer: Any) -> None:
        self._staging.append(buffer)
        while sum(kept.size for kept in self._staging) > _MOST_STAGED_BYTES:
            self._staging.pop(0).destroy()

    def close(self) -> None:
        """Wait for the run that has not ended, if there is one, and destroy the device."""
        with self.lock:
            if self.lost_reason is None:
                self._catch_up(UNLIMITED)
            self.lost_reason = self.lost_reason or "the backend was shut down"
            self._bind_groups.clear()
            self._pipelines.clear()
            self._blocks.clear()
            self._staging.clear()
            self._fills.clear()
            self._retired.clear()
            self.device.destroy()
            if self._waiter is not None:
                self._waiter.shutdown(wait=False)

    def binding_stats(self) -> CacheStats:
        return self._bind_groups.stats()

    def cache_stats(self) -> CacheStats:
        return self._pipelines.stats()


def _staging_size(byte_count: int) -> int:
    """Sizes of staging memory: powers of two, and above a mebibyte whole mebibytes."""
    if byte_count <= 1 << 20:
        return max(_LEAST_STAGED_BYTES, 1 << (byte_count - 1).bit_length())
    return -(-byte_count // (1 << 20)) << 20


def _last_line(message: str) -> str:
    return next((line.strip() for line in reversed(message.splitlines()) if line.strip()), "no reason given").rstrip(
        "."
    )


def _compiler_message(message: str) -> str:
    """The compiler's message with its line and column, without the library's heading."""
    _, _, said = message.partition("In wgpu")
    return "\n".join(said.splitlines()[1:]).strip() or message.strip()
