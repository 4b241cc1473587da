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
    "check": lambda *_: vyre.check("program"),
    "parse": lambda *_: vyre.parse(5),
    "seed": lambda *_: vyre.DispatchConfig(seed="x"),
    "elements": lambda *_: vyre.DispatchConfig(dispatch_elements=1.5),
    "timeout": lambda *_: vyre.DispatchConfig(timeout_s=True),
    "endless timeout": lambda *_: vyre.DispatchConfig(timeout_s=float("inf")),
    "label": lambda *_: vyre.DispatchConfig(label=5),
    "handlers": lambda *_: vyre.DispatchConfig(handlers=5),
}


@pytest.mark.parametrize("name", USES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_wrong_type_is_named(backend: str, name: str) -> None:
    device = BACKENDS[backend]
    with device.allocate(16) as buffer, pytest.raises(BadInputs) as refused:
        USES[name](device, buffer)
    assert "Fix: " in str(refused.value)


def test_numbers_of_numpy_are_numbers() -> None:
    config = vyre.DispatchConfig(timeout_s=np.float32(0.5), seed=np.int64(3), dispatch_elements=np.uint8(4))
    assert (config.timeout_s, config.seed, config.dispatch_elements) == (0.5, 3, 4)
    assert {type(config.timeout_s), type(config.seed), type(config.dispatch_elements)} == {float, int}
