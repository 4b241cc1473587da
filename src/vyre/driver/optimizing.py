"""How does a backend serve the optimizer? As its dispatcher; and ``vyre.optimize`` picks one.

The optimizer's own programs are compiled without it. What never changes of an arena stays on the device, by its
content, so optimising the same program again uploads nothing of it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from itertools import count
from threading import RLock
from typing import Final, Literal, overload

from vyre.driver.backend import Backend
from vyre.driver.config import DispatchConfig
from vyre.driver.resident import ReadRange, ResidentBuffer
from vyre.driver.sequence import Step
from vyre.errors import BadInputs
from vyre.ir.program import Program
from vyre.optimizer.dispatcher import Bytes, Grid, OptimizerDispatcher, ResidentRange, ResidentStep, StaticBufferSet
from vyre.optimizer.pipeline import Report, optimize_with

_MOST_RETAINED: Final = 64 << 20
_AS_IT_IS: Final = DispatchConfig(optimize=False)


class BackendDispatcher(OptimizerDispatcher):
    """Runs the optimizer's programs on a backend."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._numbers = count(1)
        self._buffers: dict[int, ResidentBuffer] = {}
        self._static: OrderedDict[bytes, StaticBufferSet] = OrderedDict()
        self._retained_bytes = 0
        self._lock = RLock()

    def dispatch(self, program: Program, inputs: Sequence[Bytes], grid: Grid | None = None) -> list[bytes]:
        config = _AS_IT_IS if grid is None else _AS_IT_IS.with_changes(grid_override=grid)
        return [bytes(view) for view in self.backend.compile(program, config).dispatch(list(inputs))]

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

    def upload_many(self, uploads: Sequence[tuple[int, Bytes]]) -> None:  # type: ignore[override]
        self.backend.upload_many([(self._buffer(handle), 0, data) for handle, data in uploads])

    def fill(self, handle: int, length: int, value: int) -> None:
        self.backend.fill(self._buffer(handle), value, 0, length)

    def read(self, handle: int) -> bytes:
        return bytes(self.backend.download(self._buffer(handle)))

    def read_ranges(self, ranges: Sequence[ResidentRange]) -> list[bytes]:
        wanted = [ReadRange(self._buffer(one.handle), one.offset, one.length) for one in ranges]
        return [bytes(view) for view in self.backend.download_many(wanted)]

    def free(self, handle: int) -> None:
        self.backend.free(self._buffer(handle))
        with self._lock:
            self._buffers.pop(handle, None)

    def acquire_static(self, domain: str, payloads: Sequence[Bytes]) -> StaticBufferSet:
        size = sum(map(len, payloads))
        if size > _MOST_RETAINED // 4:
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
                return StaticBufferSet(known.handles, cache_hit=True, retained=True)
            made = super().acquire_static(domain, payloads)
            self._static[key] = StaticBufferSet(made.handles, cache_hit=False, retained=True)
            self._retained_bytes += size
            return self._static[key]

    def release_static(self, buffers: StaticBufferSet) -> None:
        """Lets go of what was kept longest ago, once too much is kept."""
        super().release_static(buffers)
        with self._lock:
            while self._retained_bytes > _MOST_RETAINED and len(self._static) > 1:
                _, oldest = self._static.popitem(last=False)
                self._retained_bytes -= sum(self._buffer(handle).byte_len for handle in oldest.handles)
                self.free_many(oldest.handles)

    def dispatch_resident(self, step: ResidentStep) -> None:
        self.dispatch_sequence([step])

    def dispatch_sequence(self, steps: Sequence[ResidentStep]) -> None:  # type: ignore[override]
        self.backend.run_sequence([self._step(step) for step in steps])

    def _step(self, step: ResidentStep) -> Step:
        return Step(step.program, [self._buffer(h) for h in step.handles], step.grid, config=_AS_IT_IS)

    def run_sequence(
        self,
        steps: Sequence[ResidentStep],
        reads: Sequence[ResidentRange],
        *,
        fills: Sequence[tuple[int, int, int]] = (),
        uploads: Sequence[tuple[int, Bytes]] = (),
    ) -> list[bytes]:
        staged = [(self._buffer(handle), 0, length, value) for handle, length, value in fills]
        if staged or uploads:
            self.backend.upload_many([(self._buffer(handle), 0, data) for handle, data in uploads], fills=staged)
        wanted = [ReadRange(self._buffer(one.handle), one.offset, one.length) for one in reads]
        result = self.backend.run_sequence([self._step(step) for step in steps], reads=wanted)
        return [bytes(view) for view in result.outputs]


_dispatchers: dict[int, BackendDispatcher] = {}


def default_dispatcher() -> OptimizerDispatcher:
    """The dispatcher of the default backend."""
    from vyre.driver.registry import backend

    chosen = backend()
    known = _dispatchers.get(id(chosen))
    if known is None or known.backend is not chosen:
        known = _dispatchers[id(chosen)] = BackendDispatcher(chosen)
    return known


@overload
def optimize(
    program: Program, dispatcher: OptimizerDispatcher | None = ..., report: Literal[False] = ...
) -> Program: ...
@overload
def optimize(
    program: Program, dispatcher: OptimizerDispatcher | None = ..., *, report: Literal[True]
) -> tuple[Program, Report]: ...
def optimize(
    program: Program, dispatcher: OptimizerDispatcher | None = None, report: bool = False
) -> Program | tuple[Program, Report]:
    """An equivalent program that does no more, and, if asked for, a report of what was done."""
    optimised, what = optimize_with(program, dispatcher or default_dispatcher())
    return (optimised, what) if report else optimised
