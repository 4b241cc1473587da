"""Each pass can be called by itself, does only its own work, and preserves the program's results."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

import cpu_support
from vyre.conform import generate
from vyre.conform.case import run_on_reference
from vyre.driver.optimizing import BackendDispatcher
from vyre.ir import parse
from vyre.optimizer import passes
from vyre.optimizer.passes import ALL_PASSES, Pass


@pytest.fixture(scope="module")
def dispatcher() -> BackendDispatcher:
    return BackendDispatcher(cpu_support.backend())


# For each pass, statements that only it changes, before and after.
OWN_WORK = {
    "guards": (
        "if gid.x < 5 {\n    out[select(gid.x < 9, 1, 2)] = 1\n  }",
        "if gid.x < 5 {\n    out[select(true, 1, 2)] = 1\n  }",
    ),
    "stores": ("out[0] = y[0]\n  out[0] = y[1]", "out[0] = y[1]"),
    "barriers": ("out[0] = y[0]\n  barrier\n  out[1] = y[1]", "out[0] = y[0]\n  out[1] = y[1]"),
    "canonicalise": ("out[0] = 3 + y[0]", "out[0] = y[0] + 3"),
    "fold": ("out[0] = y[0 + 1] * 3 + 2", "out[0] = y[1] * 3 + 2"),
    "rewrite": ("let a = y[1]\n  out[0] = y[0] ^ a ^ a", "out[0] = y[0]"),
    "intern": (
        "out[0] = y[0] * y[1]\n  out[1] = y[0] * y[1]",
        "let t = y[0] * y[1]\n  out[0] = t\n  out[1] = t",
    ),
    "live": ("let a = y[0]\n  a = y[1]\n  out[0] = 1", "out[0] = 1"),
    "place": (
        "for k in 0 .. y[0] {\n    out[k] = y[1] * y[2]\n  }",
        "let t = y[1] * y[2]\n  for k in 0 .. y[0] {\n    out[k] = t\n  }",
    ),
}


def text(body: str) -> str:
    return f"program one(workgroup 1) {{\n  buffer 0 y:   u32[3] read\n  buffer 1 out: u32[9] readwrite\n\n  {body}\n}}"


@pytest.mark.parametrize("one", ALL_PASSES, ids=lambda one: one.name)
def test_a_pass_does_only_its_own_work(one: Pass, dispatcher: BackendDispatcher) -> None:
    for name, (before, after) in OWN_WORK.items():
        result, report = one(parse(text(before)), dispatcher)
        assert str(result).strip() == str(parse(text(after if name == one.name else before))).strip(), (one.name, name)
        if name == one.name:
            assert {stage.name for stage in report.stages} - {"encode", "kernels", "decode"} == {one.name}
        assert all(stage.seconds > 0 for stage in report.stages)


@pytest.mark.parametrize("one", ALL_PASSES, ids=lambda one: one.name)
def test_a_pass_preserves_results(one: Pass, dispatcher: BackendDispatcher) -> None:
    for seed in range(25):
        case = generate(seed)
        result, _ = one(case.program, dispatcher)
        wanted, found = (
            run_on_reference(msgspec.structs.replace(case, program=program)).outputs
            for program in (case.program, result)
        )
        assert wanted.keys() == found.keys()
        assert all(np.array_equal(wanted[name], found[name], equal_nan=True) for name in wanted), (one.name, seed)


def test_pass_names() -> None:
    on_device = ["canonicalise", "fold", "rewrite", "intern", "live", "place", "pack"]
    assert [one.name for one in ALL_PASSES] == ["guards", "stores", "barriers", "cells", *on_device]
    assert all(getattr(passes, one.name) is one for one in ALL_PASSES)
