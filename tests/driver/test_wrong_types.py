"""What has another type than a call takes is named, whoever is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cpu_support
import vyre
from vyre.backends.reference import ReferenceBackend
from vyre.driver.backend import Backend
from vyre.errors import BadInputs

ADD = vyre.parse("program add(workgroup 4) { buffer 0 a: u32[] readwrite; a[gid.x] = a[gid.x] + 1 }")
DATA = [np.zeros(4, np.uint32)]
BACKENDS = {"cpu": cpu_support.backend(None, 1), "reference": ReferenceBackend()}
USES: dict[str, Callable[[Backend, Any], object]] = {
    "bool allocate": lambda backend, _: backend.allocate(True),
    "float allocate": lambda backend, _: backend.allocate(1.5),
    "text among sizes": lambda backend, _: backend.allocate_many([4, "a"]),
    "text upload": lambda backend, buffer: backend.upload(buffer, "abc"),
    "nothing to upload": lambda backend, buffer: backend.upload(buffer, None),
    "float offset": lambda backend, buffer: backend.upload(buffer, b"abc", 1.5),
    "text fill": lambda backend, buffer: backend.fill(buffer, "a"),
    "float fill offset": lambda backend, buffer: backend.fill(buffer, 1, 1.5),
    "float fill length": lambda backend, buffer: backend.fill(buffer, 1, 0, 1.5),
    "float download": lambda backend, buffer: backend.download(buffer, 1.5),
    "text length": lambda backend, buffer: backend.download(buffer, 0, "a"),
    "no program": lambda backend, _: backend.dispatch(None, []),
    "one step": lambda backend, _: backend.run_sequence(5),
    "float times": lambda backend, _: backend.run_sequence([], times=1.5),
    "number of a backend": lambda *_: vyre.backend(5),
    "sharing": lambda *_: vyre.backend("cpu", sharing=2),
    "cache": lambda *_: vyre.backend("cpu", cache="here"),
    "check": lambda *_: vyre.check("program"),
    "parse": lambda *_: vyre.parse(5),
    "seed": lambda *_: vyre.DispatchConfig(seed="x"),
    "elements": lambda *_: vyre.DispatchConfig(dispatch_elements=1.5),
    "timeout": lambda *_: vyre.DispatchConfig(timeout_s=True),
    "endless timeout": lambda *_: vyre.DispatchConfig(timeout_s=float("inf")),
    "label": lambda *_: vyre.DispatchConfig(label=5),
    "handlers": lambda *_: vyre.DispatchConfig(handlers=5),
    "switches": lambda *_: vyre.Optimization(5),
    "schedules": lambda *_: vyre.reference.explore(ADD, DATA, schedules="all"),
    "seed of a program": lambda *_: vyre.conform.generate("x"),
    "text to wait": lambda backend, _: backend.submit(ADD, DATA).result("a while"),
}


@pytest.mark.parametrize("name", USES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_wrong_type_is_named(backend: str, name: str) -> None:
    device = BACKENDS[backend]
    with device.allocate(16) as buffer, pytest.raises(BadInputs) as refused:
        USES[name](device, buffer)
    assert "Fix: " in str(refused.value)


OF_NO_USE = {"number": 5, "real": 1.5, "nothing": None, "object": object(), "pairs": [(1, 2)], "numbers": [1]}

# Calls that take any number of things, or one record; what may be left out may be None.
PLURAL: dict[str, Callable[[Backend, Any, Any], object]] = {
    "buffers": lambda *_, x: vyre.Program.new(x, 4, []),
    "entry": lambda *_, x: vyre.Program.new([], 4, x),
    "wrapped": lambda *_, x: vyre.Program.wrapped([], 4, x),
    "with_entry": lambda *_, x: ADD.with_entry(x),
    "with_buffers": lambda *_, x: ADD.with_buffers(x),
    "sizes": lambda backend, _, x: backend.allocate_many(x),
    "uploads": lambda backend, _, x: backend.upload_many(x),
    "upload": lambda backend, _, x: backend.upload_many([x]),
    "fills": lambda backend, _, x: backend.upload_many([], fills=x),
    "fill": lambda backend, _, x: backend.upload_many([], fills=[x]),
    "downloads": lambda backend, _, x: backend.download_many(x),
    "resources": lambda backend, _, x: backend.dispatch_resident(ADD, x),
    "resources of a step": lambda backend, _, x: backend.run_sequence([vyre.Step(ADD, x)]),
    "reads": lambda backend, _, x: backend.run_sequence([], reads=x),
    "unchanged": lambda backend, buffer, x: backend.run_sequence(
        repeat=[vyre.Step(ADD, [buffer])], until=vyre.Unchanged(x)
    ),
    "memory": lambda backend, _, x: backend.dispatch_in_place(ADD, x),
    "batch": lambda backend, _, x: backend.compile(ADD).dispatch_batch(x),
    "slots": lambda *_, x: vyre.OutputBuffers(x),
    "sizes of slots": lambda *_, x: vyre.OutputBuffers.with_sizes(x),
    "stored": lambda *_, x: vyre.OutputBuffers().store(x),
    "waiting slots": lambda backend, _, x: backend.submit(ADD, DATA).result_into(x),
    "trace": lambda *_, x: vyre.trace(x).__enter__(),
    "encode": lambda *_, x: vyre.ir.encode(x),
    "decode": lambda *_, x: vyre.ir.decode(x),
    "print": lambda *_, x: vyre.ir.print_program(x),
}
OPTIONAL: dict[str, Callable[[Backend, Any, Any], object]] = {
    "dispatch": lambda backend, _, x: backend.dispatch(ADD, DATA, x),
    "dispatch_timed": lambda backend, _, x: backend.dispatch_timed(ADD, DATA, x),
    "submit": lambda backend, _, x: backend.submit(ADD, DATA, x).result(),
    "compile": lambda backend, _, x: backend.compile(ADD, x),
    "pipeline": lambda backend, _, x: backend.compile(ADD).dispatch(DATA, x),
    "dispatch_resident": lambda backend, buffer, x: backend.dispatch_resident(ADD, [buffer], x),
    "dispatch_in_place": lambda backend, _, x: backend.dispatch_in_place(ADD, [np.zeros(4, np.uint32)], x),
    "step": lambda backend, buffer, x: backend.run_sequence([vyre.Step(ADD, [buffer], config=x)]),
    "into": lambda backend, _, x: backend.dispatch(ADD, DATA, into=x),
    "into, by a pipeline": lambda backend, _, x: backend.compile(ADD).dispatch(DATA, into=x),
    "into, of a download": lambda backend, buffer, x: backend.download(buffer, into=x),
    "into, of downloads": lambda backend, buffer, x: backend.download_many([buffer], into=x),
    "into, of a sequence": lambda backend, buffer, x: backend.run_sequence([], reads=[buffer], into=x),
    "into, of nothing": lambda backend, buffer, x: backend.run_sequence([vyre.Step(ADD, [buffer])], into=x),
    "into, of a batch": lambda backend, _, x: backend.compile(ADD).dispatch_batch([DATA], into=x),
    "capabilities": lambda *_, x: vyre.check(ADD, x),
    "dispatcher": lambda *_, x: vyre.optimize(ADD, x),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", [*PLURAL, *OPTIONAL])
def test_no_other_error_comes_out_of_a_wrong_argument(backend: str, name: str) -> None:
    device = BACKENDS[backend]
    use = PLURAL.get(name) or OPTIONAL[name]
    with device.allocate(16) as buffer:
        for kind, wrong in OF_NO_USE.items():
            if kind == "nothing" and name in OPTIONAL:
                continue
            # What is listed may be taken as it is, and be refused later, by the checker.
            try:
                use(device, buffer, x=wrong)
            except BadInputs as error:
                assert "Fix: " in str(error), kind
            else:
                assert kind in ("pairs", "numbers"), f"a {kind} is taken"
        assert not device.owns(wrong)


def test_numbers_of_numpy_are_numbers() -> None:
    config = vyre.DispatchConfig(timeout_s=np.float32(0.5), seed=np.int64(3), dispatch_elements=np.uint8(4))
    assert (config.timeout_s, config.seed, config.dispatch_elements) == (0.5, 3, 4)
    assert {type(config.timeout_s), type(config.seed), type(config.dispatch_elements)} == {float, int}
