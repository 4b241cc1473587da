"""Wrong kernels: each is refused with a text that shows the line, and says what to write.

The texts stand beside the kernels, in ``errors/*.txt``; running this file writes them anew, to be read before they are
kept.
"""

from __future__ import annotations

import importlib.util
import os
import re
from functools import cache
from pathlib import Path

import pytest

from vyre.errors import KernelError
from vyre.lang import Kernel

ERRORS = Path(__file__).with_name("errors")


@cache
def kernels(topic: str) -> dict[str, Kernel]:
    spec = importlib.util.spec_from_file_location(f"wrong_kernels_{topic}", ERRORS / f"{topic}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {name: value for name, value in vars(module).items() if isinstance(value, Kernel)}


@cache
def expected(topic: str) -> dict[str, str]:
    text = (ERRORS / f"{topic}.txt").read_text(encoding="utf-8")
    _, *parts = re.split(r"(?m)^## (\w+)\n", text)
    return {name: body.strip("\n") for name, body in zip(parts[::2], parts[1::2], strict=True)}


TOPICS = sorted(path.stem for path in ERRORS.glob("*.py"))
CASES = [(topic, name) for topic in TOPICS for name in kernels(topic)]


def refusal(topic: str, name: str) -> str:
    before = Path.cwd()
    os.chdir(ERRORS)
    try:
        with pytest.raises(KernelError) as refused:
            _ = kernels(topic)[name].program
    finally:
        os.chdir(before)
    assert refused.value.line > 0
    return str(refused.value)


@pytest.mark.parametrize(("topic", "name"), CASES)
def test_a_wrong_kernel_is_shown_in_its_file(topic: str, name: str) -> None:
    assert refusal(topic, name) == expected(topic)[name]


def test_there_are_many_wrong_kernels_and_every_text_belongs_to_one() -> None:
    assert len(CASES) >= 60
    for topic in TOPICS:
        assert set(expected(topic)) == set(kernels(topic))


if __name__ == "__main__":
    for topic in TOPICS:
        texts = [f"## {name}\n{refusal(topic, name)}\n" for name in kernels(topic)]
        (ERRORS / f"{topic}.txt").write_text("\n".join(texts), encoding="utf-8")
