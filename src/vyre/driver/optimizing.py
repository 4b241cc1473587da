"""The optimizer's dispatcher on a backend, and ``vyre.optimize``.

The optimizer's own programs are compiled without optimization. Constant columns of an arena stay on the device, looked
up by content, so optimizing the same program again does not upload them again.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from itertools import count
from threading import Lock, RLock
from types import NoneType
from typing import Final, Literal, overload

import msgspec
import numpy as np

from vyre.arguments import require
from vyre.driver.backend import Backend
from vyre.driver.cache import DiskCache, source_state
from vyre.driver.config import DispatchConfig
from vyre.driver.device import ProgramImage
from vyre.driver.resident import ReadRange, ResidentBuffer
from vyre.driver.sequence import Step
from vyre.errors import BackendUnavailable, BadInputs
from vyre.ir.program import Program
from vyre.optimizer.dispatcher import (
    Bytes,
    Grid,
    OptimizerDispatcher,
    ProgramSet,
    ResidentRange,
    ResidentStep,
    Slots,
    StaticBufferSet,
    store_in,
    whole_programs,
)
from vyre.optimizer.pipeline import optimize_with
from vyre.optimizer.report import Report
from vyre.optimizer.switches import EVERYTHING, NOTHING, Optimization
from vyre.semantics.types import FLOATS

_UNOPTIMIZED: Final = DispatchConfig(optimize=NOTHING)


_DEFAULT_LOCK: Final = Lock()
_DEFAULT: Final[list[OptimizerDispatcher]] = []
# The rule table and the arenas of some hundred small programs. A retained buffer costs several times its few bytes.
_DEFAULT_RETAINED: Final = 256 << 10


class BackendDispatcher(OptimizerDispatcher):
    """Runs the optimizer's programs on a backend; static buffers stay on its device, up to a bound."""

    def __init__(self, backend: Backend, most_retained: int = 64 << 20) -> None:
        self.backend = backend
        self._most_retained = most_retained
        self._numbers = count(1)
        self._buffers: dict[int, ResidentBuffer] = {}
        self._static: OrderedDict[bytes, StaticBufferSet] = OrderedDict()
        self._users: Counter[tuple[int, ...]] = Counter()
        self._retained_bytes = 0
        self._lock = RLock()
        self._image: ProgramImage | None = None
        self._programs: ProgramSet | None = None

    @property
    def name(self) -> str:
        return self.backend.id

    def programs(self) -> ProgramSet:
        """Return the headers of the programs that the backend has an image of; whole programs without an image."""
        if self._programs is None:
            with self._lock:
                if self._programs is None:
                    self._programs = self._load_programs()
        return self._programs

    def _load_programs(self) -> ProgramSet:
        def make() -> tuple[Sequence[Program], bytes]:
            whole = whole_programs()
            notes = msgspec.msgpack.encode((whole.rules, whole.table.tobytes()))
            return (whole.need, whole.simplify, whole.live, whole.place, whole.pack), notes

        self._image = self.backend.device.load_image(source_state("optimizer", "semantics", "ir"), make)
        if self._image is None:
            # Constants are folded exactly as the reference does, or not at all.
            profile = self.backend.capabilities
            floats = tuple(dtype for dtype in FLOATS if profile.float_exact and dtype in profile.dtypes)
            return whole_programs(floats)
        need, simplify, live, place, pack = self._image.headers
        rules, table = msgspec.msgpack.decode(self._image.notes, type=tuple[tuple[str, ...], bytes])
        return ProgramSet(need, simplify, live, place, pack, rules, np.frombuffer(table, np.uint32))

    def dispatch(self, program: Program, inputs: Sequence[Bytes], grid: Grid | None = None) -> list[bytes]:
        config = _UNOPTIMIZED if grid is None else _UNOPTIMIZED.with_changes(grid_override=grid)
        return [bytes(view) for view in self.backend.compile(self._whole(program), config).dispatch(list(inputs))]

    def _is_header(self, program: Program) -> bool:
        return self._image is not None and any(program is one for one in self._image.headers)

    def _whole(self, program: Program) -> Program:
        whole: Program = getattr(whole_programs(), program.name) if self._is_header(program) else program
        return whole

    def supports_persistent(self) -> bool:
        return self.backend.capabilities.resident

    def device_feature_cache_key(self) -> int:
        profile = repr(self.backend.capabilities).encode()
        return int.from_bytes(blake2b(profile, digest_size=8).digest(), "little")

    def allocate(self, byte_len: int) -> int:
        buffer = self.backend.allocate(byte_len)
        with self._lock:
            number = next(self._numbers)
            self._buffers[number] = buffer
        return number

    def _buffer(self, handle: int) -> ResidentBuffer:
        buffer = self._buffers.get(handle)
        if buffer is None:
            raise BadInputs(f"there is no resident buffer {handle}.", "use a handle that was allocated and not freed.")
        return buffer

    def upload(self, handle: int, data: Bytes) -> None:
        self.backend.upload(self._buffer(handle), data)

    def upload_many(self, uploads: Sequence[tuple[int, Bytes]]) -> None:
        self.backend.upload_many([(self._buffer(handle), 0, data) for handle, data in uploads])

    def fill(self, handle: int, length: int, value: int) -> None:
        self.backend.fill(self._buffer(handle), value, 0, length)

    def read(self, handle: int) -> bytes:
        return bytes(self.backend.download(self._buffer(handle)))

    def read_ranges(self, ranges: Sequence[ResidentRange], into: Slots | None = None) -> Sequence[Bytes]:
        wanted = [ReadRange(self._buffer(one.handle), one.offset, one.length) for one in ranges]
        return store_in(into, self.backend.download_many(wanted))

    def free(self, handle: int) -> None:
        buffer = self._buffer(handle)
        try:
            self.backend.free(buffer)
        finally:
            # The handle is invalid even if the free fails.
            with self._lock:
                self._buffers.pop(handle, None)

    def acquire_static(self, domain: str, payloads: Sequence[Bytes]) -> StaticBufferSet:
        size = sum(map(len, payloads))
        if size > self._most_retained // 4:
            return super().acquire_static(domain, payloads)
        digest = blake2b(domain.encode(), digest_size=32)
        for payload in payloads:
            digest.update(len(payload).to_bytes(8, "little"))
            digest.update(payload)
        key = digest.digest()
        with self._lock:
            known = self._static.get(key)
            if known is not None:
                self._static.move_to_end(key)
            else:
                made = super().acquire_static(domain, payloads)
                self._static[key] = StaticBufferSet(made.handles, cache_hit=True, retained=True)
                self._retained_bytes += size
            held = self._static[key]
            self._users[held.handles] += 1
            return held if known is not None else StaticBufferSet(held.handles, cache_hit=False, retained=True)

    def release_static(self, buffers: StaticBufferSet) -> None:
        """Release static buffers; beyond the bound, free the least recently used ones that are not in use."""
        if not buffers.retained:
            super().release_static(buffers)
            return
        with self._lock:
            self._users[buffers.handles] -= 1
            if self._retained_bytes <= self._most_retained:
                return
            idle = [key for key, held in self._static.items() if not self._users[held.handles]]
            for key in idle:
                if self._retained_bytes <= self._most_retained:
                    break
                oldest = self._static.pop(key)
                del self._users[oldest.handles]
                self._retained_bytes -= sum(self._buffer(handle).byte_len for handle in oldest.handles)
                self.free_many(oldest.handles)

    def dispatch_resident(self, step: ResidentStep) -> None:
        self.dispatch_sequence([step])

    def dispatch_sequence(self, steps: Sequence[ResidentStep]) -> None:
        self.run_sequence(steps, [])

    def _step(self, step: ResidentStep) -> Step:
        return Step(self._whole(step.program), [self._buffer(h) for h in step.handles], step.grid, config=_UNOPTIMIZED)

    def run_sequence(
        self,
        steps: Sequence[ResidentStep],
        reads: Sequence[ResidentRange],
        *,
        fills: Sequence[tuple[int, int, int]] = (),
        uploads: Sequence[tuple[int, Bytes]] = (),
        into: Slots | None = None,
    ) -> Sequence[Bytes]:
        staged = [(self._buffer(handle), 0, length, value) for handle, length, value in fills]
        if staged or uploads:
            self.backend.upload_many([(self._buffer(handle), 0, data) for handle, data in uploads], fills=staged)
        wanted = [ReadRange(self._buffer(one.handle), one.offset, one.length) for one in reads]
        image = self._image
        if image is not None and all(self._is_header(step.program) for step in steps):
            image.run([(step.program.name, _groups(step), [*map(self._buffer, step.handles)]) for step in steps])
            views = self.backend.download_many(wanted)
        else:
            views = self.backend.run_sequence([self._step(step) for step in steps], reads=wanted).outputs
        return store_in(into, views)


def _groups(step: ResidentStep) -> int:
    return 1 if step.grid is None else step.grid[0]


def default_dispatcher(cache: DiskCache | None = None) -> OptimizerDispatcher:
    """Return the dispatcher of the process: on the cpu backend, which starts fastest, or on the default backend.

    The optimizer's own code is cached in the ``cache`` of the first call, or in the default directory.
    """
    with _DEFAULT_LOCK:
        if not _DEFAULT:
            _DEFAULT.append(_new_dispatcher(cache))
        return _DEFAULT[0]


def _new_dispatcher(cache: DiskCache | None) -> OptimizerDispatcher:
    from vyre.driver.registry import backend

    try:
        chosen = backend("cpu") if cache is None else backend("cpu", cache=cache)
    except BackendUnavailable:
        chosen = backend()
    return BackendDispatcher(chosen, most_retained=_DEFAULT_RETAINED)


@overload
def optimize(
    program: Program,
    dispatcher: OptimizerDispatcher | None = ...,
    report: Literal[False] = ...,
    switches: Optimization = ...,
) -> Program: ...
@overload
def optimize(
    program: Program,
    dispatcher: OptimizerDispatcher | None = ...,
    *,
    report: Literal[True],
    switches: Optimization = ...,
) -> tuple[Program, Report]: ...
def optimize(
    program: Program,
    dispatcher: OptimizerDispatcher | None = None,
    report: bool = False,
    switches: Optimization = EVERYTHING,
) -> Program | tuple[Program, Report]:
    """Optimize a program; return the result, and with ``report=True`` also the report."""
    require(dispatcher, (OptimizerDispatcher, NoneType), "the dispatcher", "give BackendDispatcher(backend), or none.")
    require(switches, Optimization, "switches", "give a vyre.Optimization(...).")
    result, made_report = optimize_with(program, dispatcher or default_dispatcher(), groups=switches.bits)
    return (result, made_report) if report else result
