"""Ctrl-C in native code: end the launch of the main thread and raise KeyboardInterrupt.

Python's C handler only notes a signal, for the interpreter to act on when native code has returned. So the native
runtime puts a handler before it, which also stores INTERRUPTED into the stop word of the launch that the main thread
runs; kernels poll that word. This is done only where Python's own handler raises KeyboardInterrupt: a handler of the
program's own is called when the launch has returned by itself. Launches on other threads are not interrupted.
"""

from __future__ import annotations

import math
import os
import signal
import threading
from collections.abc import Callable, Iterable
from ctypes import CFUNCTYPE, c_int64, c_void_p
from functools import cache
from importlib import import_module
from typing import Any, Final, NoReturn

from vyre.backends.cpu.compile import Loaded
from vyre.backends.cpu.layout import WORD_BYTES, Interrupts
from vyre.ir import nodes as n

# A launch of fewer iterations, over all invocations, ends within milliseconds of itself.
_SHORT_ITERATIONS: Final = 1 << 20
# The wrapper in `signal` tries to make an enum member of every handler, which takes longer than a small launch.
_handler_of: Final[Callable[[int], Any]] = import_module("_signal").getsignal


class InterruptState:
    """The words of the runtime's SIGINT handler."""

    def __init__(self, address: int) -> None:
        self._arrived = _word(address, Interrupts.ARRIVED)
        self._main = threading.main_thread().ident
        self._of_launch = [_word(address, Interrupts.STOP), _word(address, Interrupts.HANDLERS)]
        os.register_at_fork(after_in_child=self._forget)

    def admits(self) -> bool:
        """Prepare a launch on this thread; return whether SIGINT is to end it."""
        if threading.get_ident() != self._main:
            return False
        # A signal from here on is seen by the runtime. An earlier one is raised by the interpreter after the next call.
        self._arrived.value = 0
        return _handler_of(signal.SIGINT) is signal.default_int_handler

    def _forget(self) -> None:
        """Drop the launch and the handlers of threads that did not follow a fork; this one is the main thread now."""
        self._main = threading.get_ident()
        for word in self._of_launch:
            word.value = 0


def _word(address: int, field: int) -> c_int64:
    return c_int64.from_address(address + WORD_BYTES * field)


@cache
def interrupt_state(code: Loaded) -> InterruptState:
    """Return the state in the loaded runtime."""
    return InterruptState(CFUNCTYPE(c_void_p)(code.address("interrupt_state"))())


def raise_interrupt() -> NoReturn:
    """Raise KeyboardInterrupt once: the interpreter raises the pending one before the first statement here."""
    raise KeyboardInterrupt


def takes_long(invocations: int, body: Iterable[n.Stmt]) -> bool:
    """Whether a launch may take long enough to interrupt it, judged by its loops."""
    return invocations * _iterations(body) > _SHORT_ITERATIONS


def _iterations(body: Iterable[n.Stmt]) -> float:
    """Most iterations of an invocation, counting straight code as one; infinite where no constant bounds a loop."""
    total = 1.0
    for statement in body:
        match statement:
            case n.Loop(start=n.Lit(bits=start), stop=n.Lit(bits=stop), body=inner):
                total += max(0, stop - start) * _iterations(inner)
            case n.Loop() | n.While() | n.AsyncLoad() | n.AsyncStore() | n.CopyBytes():
                return math.inf
            case n.If(then=then, otherwise=otherwise):
                total += max(_iterations(then), _iterations(otherwise))
            case n.Block(body=inner) | n.Region(body=inner):
                total += _iterations(inner)
            case _:
                pass
    return total
