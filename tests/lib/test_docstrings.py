"""The examples in the library's docstrings run, and give what they show."""

from __future__ import annotations

import doctest
import pkgutil
from importlib import import_module

import pytest

import vyre.lib
from vyre.lib.workspace import LibraryFunction

MODULES = [info.name for info in pkgutil.walk_packages(vyre.lib.__path__, "vyre.lib.") if not info.ispkg]


def examples_of(module_name: str) -> list[doctest.DocTest]:
    module = import_module(module_name)
    found = doctest.DocTestFinder(exclude_empty=True).find(module)
    parser = doctest.DocTestParser()
    for name, value in vars(module).items():
        if isinstance(value, LibraryFunction) and value.__module__ == module_name:
            found.append(parser.get_doctest(value.__doc__ or "", dict(vars(module)), name, module_name, 0))
    return [test for test in found if test.examples]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(name: str) -> None:
    for test in examples_of(name):
        shown: list[str] = []
        failed, _ = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=shown.append)
        assert not failed, "".join(shown)


def test_public_functions_have_examples() -> None:
    assert sum(len(examples_of(name)) for name in MODULES) > 40


@pytest.mark.parametrize("package", ["bitset", "scan", "reduce", "graph", "dataflow"])
def test_every_public_function_says_what_it_is(package: str) -> None:
    module = import_module(f"vyre.lib.{package}")
    for name in module.__all__:
        assert (getattr(module, name).__doc__ or "").strip(), name


def test_the_program_of_a_function_prints() -> None:
    from vyre.lib import graph

    assert str(graph.bfs.program).startswith("program search(workgroup 16)")
    assert repr(graph.bfs) == "<vyre.lib function bfs>"
