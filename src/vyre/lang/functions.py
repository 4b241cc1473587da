"""What is a function that kernels call? Its source and its parameters; every call is translated in its place."""

from __future__ import annotations

from functools import cached_property, update_wrapper
from types import FunctionType
from typing import Any

from vyre.errors import KernelError
from vyre.lang.annotations import Parameter, parameters_of
from vyre.lang.source import Source


class Function:
    """A function for kernels. Called from Python, it is the Python function that it was made from."""

    def __init__(self, function: FunctionType) -> None:
        self.source = Source(function)
        update_wrapper(self, function)

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        return parameters_of(self.source)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.source.function(*arguments, **named)

    def __repr__(self) -> str:
        return f"<vyre function {self.source.function.__qualname__}>"


def function(definition: Any) -> Function:
    """Makes a Python function callable from kernels; parameters without annotations take what they are given."""
    return Function(plain_function(definition, "@vyre.function"))


def plain_function(definition: Any, decorator: str) -> FunctionType:
    if not isinstance(definition, FunctionType):
        raise KernelError(
            f"{decorator} stands on a {type(definition).__name__}.", "put it directly on a `def` of your own."
        )
    return definition
