"""Whatever Python function is put before the translation, it is translated or refused by name."""

from __future__ import annotations

import importlib
from random import Random
from types import FunctionType

import pytest

from vyre.errors import KernelError
from vyre.ir import nodes as n
from vyre.lang.annotations import Parameter
from vyre.lang.context import Variable, Writer
from vyre.lang.inline import enter, inline
from vyre.lang.source import Source
from vyre.lang.statements import block
from vyre.lang.tasks import run
from vyre.lang.values import ArrayRef, Scalar
from vyre.semantics.types import DType

MODULES = (
    "shlex",
    "colorsys",
    "fractions",
    "heapq",
    "random",
    "statistics",
    "textwrap",
    "numpy.polynomial.polynomial",
)


def functions(module: str) -> list[FunctionType]:
    names = vars(importlib.import_module(module))
    classes = [value for value in names.values() if isinstance(value, type) and value.__module__ == module]
    found = [*names.values(), *(member for one in classes for member in vars(one).values())]
    return [value for value in found if isinstance(value, FunctionType) and value.__module__ == module]


def translated(function: FunctionType) -> list[n.Stmt]:
    """The body, with parameters that are arrays and numbers of some types."""
    random = Random(function.__qualname__)
    source = Source(function)
    arguments = source.tree.args
    parameters = [Parameter(node.arg, None, node) for node in (*arguments.args, *arguments.kwonlyargs)]
    writer = Writer(strict=False)
    writer.inline = inline
    context = enter(writer, source, parameters)
    for name in (parameter.name for parameter in parameters):
        dtype = random.choice((DType.U32, DType.F32, DType.BOOL))
        if name in context.scopes.written:
            context.variables[id(context.body), name] = Variable(name, dtype)
        elif random.random() < 0.4:
            context.parameters[name] = ArrayRef(name, name, dtype, (None,), None, True, True)
        else:
            context.parameters[name] = Scalar(n.Var(name), dtype)
    return list(run(block(context, context.body)))


@pytest.mark.parametrize("module", MODULES)
def test_a_function_is_translated_or_refused(module: str) -> None:
    found = functions(module)
    assert found
    for function in found:
        try:
            translated(function)
        except KernelError as error:
            assert "fix: " in str(error)
            assert error.line >= function.__code__.co_firstlineno
