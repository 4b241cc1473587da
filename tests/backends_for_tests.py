"""Small backends that subclass the contract: one that does nothing, one that counts, one that fails at call k."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from vyre.backends.reference import ReferenceBackend
from vyre.driver.backend import Backend, Fill, Upload
from vyre.driver.config import DispatchConfig
from vyre.driver.forwarding import ForwardingBackend
from vyre.driver.outputs import Buffer, OutputBuffers, deliver_outputs
from vyre.driver.pending import Inputs
from vyre.driver.resident import ResidentBuffer
from vyre.driver.timing import TimedResult
from vyre.errors import DispatchFailed
from vyre.ir.buffers import BufferDecl
from vyre.ir.build import buf_len, gid, if_, load, store
from vyre.ir.program import Program
from vyre.semantics.types import DType

U32 = DType.U32


class FixedBackend(Backend):
    """Gives the same outputs whatever it is asked; has nothing but what a backend must have."""

    id = "fixed"
    version = "1"

    def __init__(self, *outputs: bytes) -> None:
        self.results = outputs

    def dispatch(
        self,
        program: Program,  # noqa: ARG002
        inputs: Inputs,
        config: DispatchConfig | None = None,  # noqa: ARG002
        *,
        into: OutputBuffers | None = None,
    ) -> list[memoryview]:
        data: Iterable[Any] = inputs.values() if isinstance(inputs, dict) else inputs
        return deliver_outputs(self.results, into, sum(memoryview(one).nbytes for one in data))


class RecordingBackend(ForwardingBackend):
    """Records the name of every primitive call; what is composed of them is composed here, so that it is seen.

    ``fail_at`` names calls that fail, by name and number from 0, as in ``{("upload", 1)}``. They fail before they do
    anything, except ``free``, which fails after the memory is gone: a failing free must not hide a leak.
    """

    def __init__(self, inner: Backend | None = None, fail_at: Iterable[tuple[str, int]] = ()) -> None:
        super().__init__(inner or ReferenceBackend(poison=0xA5))
        self.fail_at = set(fail_at)
        self.calls: list[str] = []
        self.freed: list[int] = []

    allocate_many = Backend.allocate_many
    download_many = Backend.download_many
    load_image = Backend.load_image
    prepare_sequence = Backend.prepare_sequence
    run_sequence = Backend.run_sequence
    compile = Backend.compile
    submit = Backend.submit

    @property
    def counts(self) -> Counter[str]:
        return Counter(self.calls)

    def _call(self, name: str) -> None:
        number = self.calls.count(name)
        self.calls.append(name)
        if (name, number) in self.fail_at:
            raise DispatchFailed(f"injected failure of {name} number {number}.", "remove the fault.", code="injected")

    def dispatch(
        self,
        program: Program,
        inputs: Inputs,
        config: DispatchConfig | None = None,
        *,
        into: OutputBuffers | None = None,
    ) -> list[memoryview]:
        self._call("dispatch")
        return super().dispatch(program, inputs, config, into=into)

    def dispatch_timed(
        self,
        program: Program,
        inputs: Inputs,
        config: DispatchConfig | None = None,
        *,
        into: OutputBuffers | None = None,
    ) -> TimedResult:
        self._call("dispatch")
        return super().dispatch_timed(program, inputs, config, into=into)

    def dispatch_resident(
        self, program: Program, resources: Sequence[ResidentBuffer], config: DispatchConfig | None = None
    ) -> TimedResult:
        self._call("dispatch_resident")
        return super().dispatch_resident(program, resources, config)

    def allocate(self, byte_len: int) -> ResidentBuffer:
        self._call("allocate")
        return super().allocate(byte_len)

    def free(self, buffer: ResidentBuffer) -> None:
        super().free(buffer)
        self.freed.append(buffer.byte_len)
        self._call("free")

    def upload(self, buffer: ResidentBuffer, data: Buffer, offset: int = 0) -> None:
        self._call("upload")
        super().upload(buffer, data, offset)

    def upload_many(self, uploads: Iterable[Upload], *, fills: Iterable[Fill] = ()) -> None:
        self._call("upload_many")
        super().upload_many(uploads, fills=fills)

    def fill(self, buffer: ResidentBuffer, value: int = 0, offset: int = 0, length: int | None = None) -> None:
        self._call("fill")
        super().fill(buffer, value, offset, length)

    def download(
        self,
        buffer: ResidentBuffer,
        offset: int = 0,
        length: int | None = None,
        *,
        into: OutputBuffers | None = None,
    ) -> memoryview:
        self._call("download")
        return super().download(buffer, offset, length, into=into)


PRIMITIVES = (
    "dispatch", "dispatch_resident", "allocate", "free", "upload", "upload_many", "fill", "download",
)  # fmt: skip


def increment(limit: int | None = None, *, name: str = "increment") -> Program:
    """Adds one to every element of ``state``; with a limit, only to those below it."""
    cell = load("state", gid())
    add = store("state", gid(), cell + 1)
    inside = gid() < buf_len("state")
    body = [if_(inside, [add if limit is None else if_(cell < limit, [add])])]
    return Program.new([BufferDecl.read_write("state", 0, U32)], 4, body, name=name)


def double(*, name: str = "double") -> Program:
    """Writes twice ``a`` to ``out``."""
    body = [if_(gid() < buf_len("a"), [store("out", gid(), load("a", gid()) * 2)])]
    return Program.new([BufferDecl.read("a", 0, U32), BufferDecl.output("out", 1, U32)], 4, body, name=name)
