"""The names of the driver that people use are found on the package, and cost nothing before that."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

import vyre
from backends_for_tests import increment


def test_a_program_is_run_and_traced_with_public_names(tmp_path: Path) -> None:
    backend = vyre.backend("reference")
    before = vyre.telemetry.snapshot().launches
    with vyre.trace(tmp_path / "out.json"):
        outputs = backend.dispatch(increment(), [np.zeros(2, np.uint32)], vyre.DispatchConfig(fixpoint_iterations=3))
    assert np.frombuffer(outputs[0], np.uint32).tolist() == [3, 3]
    assert vyre.telemetry.snapshot().launches == before + 1
    assert "reference" in [info.name for info in vyre.list_backends()]
    assert issubclass(vyre.Timeout, vyre.VyreError)


def test_the_driver_loads_on_first_use() -> None:
    loaded = "import sys, vyre; print('vyre.driver' in sys.modules, 'numpy' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert answer.stdout == "False False\n"
