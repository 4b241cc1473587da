"""How are calls recorded, to run without the host between them? As the steps of one sequence.

Inside ``with vyre.sequence(...)`` a call of a kernel is a step. At the end the steps run, on data that stays on the
device: NumPy arrays go there once before and come back once after.
"""

from __future__ import annotations

import re
from collections.abc import Sequence as Items
from contextvars import ContextVar, Token
from types import NoneType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from vyre.driver.backend import Backend
from vyre.driver.resident import ResidentBuffer
from vyre.driver.sequence import PreparedSequence, SequenceResult, Step, Unchanged, Zero
from vyre.errors import BadInputs, VyreError
from vyre.ir.binding import Array
from vyre.lang.arguments import Spec, host_array, take
from vyre.lang.arrays import DeviceArray, Memory, resident
from vyre.lang.backends import shared_backend
from vyre.lang.explain import explain

if TYPE_CHECKING:
    from vyre.lang.kernel import Launch

# Where the driver says that an error happened.
_STEP: Final = re.compile(r"in step (\d+) of the sequence")

recording: ContextVar[Sequence | None] = ContextVar("recording", default=None)


class Sequence:
    """Recorded calls. ``passes`` and ``converged`` tell how the last run of the repeated part went."""

    def __init__(self, backend: str | Backend | None = None) -> None:
        self.backend = shared_backend(backend)
        self.result: SequenceResult | None = None
        self._steps: list[Step] = []
        self._first: list[Step] | None = None
        self._times = 1
        self._until: Unchanged | Zero | None = None
        self._is_closed = False
        # Host arrays of the sequence: what was given, its memory on the device, and whether a step writes it.
        self._hosts: list[tuple[Array, Memory, bool]] = []
        self._kept: list[Memory] = []
        self._prepared: PreparedSequence | None = None
        self._token: Token[Sequence | None] | None = None

    @property
    def passes(self) -> int:
        return 0 if self.result is None else self.result.passes

    @property
    def converged(self) -> bool | None:
        return None if self.result is None else self.result.converged

    def __enter__(self) -> Sequence:
        if recording.get() is not None:
            raise BadInputs("a sequence is being recorded already.", "end one sequence before the next.")
        if self._prepared is not None:
            raise BadInputs("this sequence is recorded.", "run it again with run(), or record another one.")
        self._token = recording.set(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert self._token is not None  # __enter__ set it
        recording.reset(self._token)
        if kind is None:
            self.run()

    def repeat(self, times: int, *, until: Unchanged | Zero | None = None) -> Repeat:
        """Repeats what was recorded, or, as a context, what is recorded in it: so often, or until told to stop."""
        if self._first is not None:
            raise BadInputs("a sequence has one part that is repeated.", "record another sequence for the other one.")
        if type(times) is not int or times < 0:
            raise BadInputs(f"a sequence cannot be repeated {times!r:.60} times.", "give a count of at least 0.")
        if not isinstance(until, (Unchanged, Zero, NoneType)):
            raise BadInputs(f"a {type(until).__name__} says not when to stop.", "give Unchanged([x]) or Zero(x).")
        self._first, self._times, self._until = [], times, until
        self._is_closed = True
        return Repeat(self)

    def record(self, launch: Launch, arguments: Items[Any]) -> None:
        """Makes a call a step."""
        if self._is_closed:
            raise BadInputs("the repeated part is the last of a sequence.", "record another sequence for what follows.")
        definition, specs = launch.definition, launch.definition.translation().specs
        backend = launch.backend_for(arguments) if launch.has_backend else self.backend
        if backend is not self.backend:
            raise BadInputs(
                f"kernel '{definition.name}' runs on '{backend.id}', and the sequence on '{self.backend.id}'.",
                "record kernels of the sequence's backend.",
            )
        moved = [
            self._resident(host_array(spec, argument), spec)
            if spec.rank and not isinstance(argument, DeviceArray)
            else argument
            for spec, argument in zip(specs, arguments, strict=True)
        ]
        taken = take(specs, moved, in_place=False)
        resources = [one if isinstance(one, ResidentBuffer) else self._constant(one) for one in taken.memory]
        for resource in resources:
            if not self.backend.owns(resource):
                raise BadInputs(
                    f"an array is on backend '{resource.owner.id}', and the sequence on '{self.backend.id}'.",
                    "copy it there: vyre.array(a.numpy(), backend=...).",
                )
        program = definition.translation(taken.layouts).program
        self._steps.append(Step(program, resources, config=launch.kernel.config(launch.grid)))

    def run(self) -> SequenceResult:
        """Runs all steps once more; host arrays are read before and written after."""
        try:
            if self._prepared is None:
                self._prepared = self._prepare()
            uploads = [(memory.buffer, 0, np.ascontiguousarray(host)) for host, memory, _ in self._hosts if host.size]
            if uploads:
                self.backend.upload_many(uploads)
            self.result = self._prepared.run()
        except VyreError as error:
            self._explain(error)
            raise
        outputs = iter(self.result.outputs)
        for host, _, writes in self._hosts:
            if writes:
                output = next(outputs)
                if host.size:
                    host[...] = np.frombuffer(output, host.dtype).reshape(host.shape)
        return self.result

    def _prepare(self) -> PreparedSequence:
        written = [memory.buffer for _, memory, writes in self._hosts if writes]
        first, repeat = (self._steps, []) if self._first is None else (self._first, self._steps)
        return self.backend.prepare_sequence(first, repeat=repeat, times=self._times, until=self._stop(), reads=written)

    def _explain(self, error: VyreError) -> None:
        """Shows where a failure stands in the kernel of its step, if that is known."""
        steps = [*(self._first or ()), *self._steps]
        found = _STEP.search(error.message)
        if found is not None or len({id(step.program) for step in steps}) == 1:
            explain(error, steps[int(found[1]) if found is not None else 0].program, self.backend)

    def _resident(self, host: Array, spec: Spec) -> DeviceArray:
        """A host array on the device, for as long as the sequence is there."""
        for at, (known, memory, was_written) in enumerate(self._hosts):
            if _is_same(known, host):
                self._hosts[at] = known, memory, spec.writes or was_written
                return DeviceArray.whole(memory, spec.dtype, host.shape)
            if np.may_share_memory(known, host):
                raise BadInputs(
                    "two arrays of a sequence overlap in memory and are not the same.",
                    "pass one array to all steps, or copies; views of vyre.array(...) may overlap.",
                )
        memory = Memory(self.backend.allocate(host.nbytes))
        self._hosts.append((host, memory, spec.writes))
        return DeviceArray.whole(memory, spec.dtype, host.shape)

    def _constant(self, host: Array) -> ResidentBuffer:
        self._kept.append(resident(host, self.backend))
        return self._kept[-1].buffer

    def _stop(self) -> Unchanged | Zero | None:
        match self._until:
            case Unchanged(arrays):
                watched = arrays if isinstance(arrays, (list, tuple)) else [arrays]
                return Unchanged([self._watched(one) for one in watched])
            case Zero(array):
                return Zero(self._watched(array))
            case None:
                return None

    def _watched(self, one: Any) -> ResidentBuffer:
        if isinstance(one, ResidentBuffer):
            return one
        if isinstance(one, DeviceArray) and one.is_whole:
            return one.buffer
        for host, memory, _ in self._hosts:
            if isinstance(one, np.ndarray) and _is_same(host, one):
                return memory.buffer
        raise BadInputs(
            "a sequence watches whole arrays that its steps use.",
            "name an array that was passed to a step, not a view.",
        )

    def _begin_repeat(self) -> None:
        self._first, self._steps = self._steps, []
        self._is_closed = False

    def _end_repeat(self) -> None:
        self._is_closed = True
        if not self._steps:
            raise BadInputs("nothing was recorded to be repeated.", "call kernels inside the repeat.")


class Repeat:
    """The part of a sequence that is repeated; as a context, what is recorded in it."""

    def __init__(self, sequence: Sequence) -> None:
        self._sequence = sequence

    def __enter__(self) -> Repeat:
        self._sequence._begin_repeat()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._sequence._end_repeat()


def sequence(backend: str | Backend | None = None) -> Sequence:
    """A context in which calls of kernels are recorded; at its end they run as one sequence on that backend."""
    return Sequence(backend)


def _is_same(one: Array, other: Array) -> bool:
    if one is other:
        return True
    first, second = one.__array_interface__["data"][0], other.__array_interface__["data"][0]
    return bool(
        first == second and one.shape == other.shape and one.strides == other.strides and one.dtype == other.dtype
    )
