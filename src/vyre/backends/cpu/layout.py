"""Memory layout shared by Python and the native runtime, described once.

Each class is a C struct of 64-bit words: its attributes are ints, the index of each field's first word, ``WORDS`` its
size. ``scripts/make_native.py`` writes ``native/layout.h`` from ``FIELDS``. Python fills structs as int64 arrays.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar, Final

import msgspec

WORD_BYTES: Final = 8
_LINE_WORDS: Final = 8
# A mutex or a condition variable of any C library fits in these words.
_OPAQUE_WORDS: Final = 16
_COUNTER: Final = "_Atomic(uint64_t)"


class Ending(IntEnum):
    """Why a walk returned."""

    DONE = 0
    UNCHANGED = 1
    ASKED = 2
    STOPPED = 3
    # Python has to check for signals and call again.
    NOT_BEGUN = 4


class Reason(IntEnum):
    """Value of a stop word, or the refusal of ``enter``: why a launch did not run to its end.

    Kernels store OUT_OF_MEMORY themselves (``vyre.emit.llvm.shell``).
    """

    # Python has to check for signals and call again.
    NOT_ENTERED = -2
    MISALIGNED = -1
    NONE = 0
    TIMED_OUT = 1
    OUT_OF_MEMORY = 2
    INTERRUPTED = 3


class Field(msgspec.Struct, frozen=True):
    """A field of a struct: its name and type in C, and its words."""

    name: str
    ctype: str
    start: int
    words: int


class _Declared(int):
    """A field in a class body, before its place is known."""

    ctype: str
    words: int


def _field(ctype: str, words: int = 1) -> int:
    declared = _Declared()
    declared.ctype, declared.words = ctype, words
    return declared


class Layout:
    """Base of the structs: places the fields one after another."""

    FIELDS: ClassVar[tuple[Field, ...]]
    WORDS: ClassVar[int]

    def __init_subclass__(cls) -> None:
        fields, start = [], 0
        for name, declared in list(vars(cls).items()):
            if isinstance(declared, _Declared):
                fields.append(Field(name.lower(), declared.ctype, start, declared.words))
                # A plain int: it indexes an array several times as fast as one of a subclass.
                setattr(cls, name, start)
                start += declared.words
        cls.FIELDS, cls.WORDS = tuple(fields), start


class Job(Layout):
    """A launch: ``kernel(block, first, last)`` over ``total`` items, ``grain`` at a time."""

    KERNEL = _field("kernel_function *")
    BLOCK = _field("const void *")
    TOTAL = _field("uint64_t")
    GRAIN = _field("uint64_t")
    STOP = _field("stop_word *")


class Pool(Layout):
    """Thread pool: synchronisation objects, then words on cache lines by who writes them, then a part per thread."""

    MUTEX = _field("opaque", _OPAQUE_WORDS)
    START = _field("opaque", _OPAQUE_WORDS)
    FINISH = _field("opaque", _OPAQUE_WORDS)
    # Polled by idle workers, written once per launch.
    GENERATION = _field(_COUNTER)
    JOB = _field("_Atomic(const struct job *)")
    CLOSING = _field(_COUNTER)
    SPINS = _field("uint64_t")
    THREADS = _field("uint64_t")
    PAD_0 = _field("padding", _LINE_WORDS - 5)
    WORKING = _field(_COUNTER)
    PAD_1 = _field("padding", _LINE_WORDS - 1)
    SLEEPING = _field(_COUNTER)
    CALLER_SLEEPS = _field(_COUNTER)
    BUSY = _field(_COUNTER)
    PAD_2 = _field("padding", 2 * _LINE_WORDS - 3)


class Part(Layout):
    """A thread's part of the current job: how many of its items have been taken."""

    TAKEN = _field(_COUNTER)
    PAD = _field("padding", _LINE_WORDS - 1)


class Edit(Layout):
    """A copy before a launch; without a source, zeros."""

    TARGET = _field("void *")
    SOURCE = _field("const void *")
    BYTES = _field("uint64_t")


class Node(Layout):
    """A launch in a table.

    ``CONTROL`` points to two words of 32 bits that the launch writes: which of ``EXITS`` is the next node, and whether
    invocations wait for the host. Without it, ``FOLLOWING`` is the next node.
    """

    JOB = _field("struct job", 5)
    SHARED = _field("uint64_t")
    EDITS = _field("const struct edit *")
    EDIT_COUNT = _field("uint64_t")
    FOLLOWING = _field("uint64_t")
    EXITS = _field("const uint64_t *")
    CONTROL = _field("uint32_t *")


class Watch(Layout):
    """Memory that is compared with its shadow after each pass."""

    MEMORY = _field("const void *")
    SHADOW = _field("void *")
    BYTES = _field("uint64_t")


class Run(Layout):
    """A walk over a table: where it is, when it ends. The stop word is on a cache line that walks do not write."""

    NODES = _field("const struct node *")
    COUNT = _field("uint64_t")
    AT = _field("uint64_t")
    PASSES = _field("uint64_t")
    TIMES = _field("uint64_t")
    WATCHES = _field("const struct watch *")
    WATCH_COUNT = _field("uint64_t")
    FOLLOWS = _field("uint64_t")
    ASKS = _field("uint64_t")
    DECISIONS = _field("uint64_t")
    PAD_0 = _field("padding", 10)
    STOP = _field("stop_word")
    PAD_1 = _field("padding", 11)


class Frame(Layout):
    """A launch on arrays, without their addresses: the block's template follows."""

    KERNEL = _field("kernel_function *")
    TOTAL = _field("uint64_t")
    GRAIN = _field("uint64_t")
    BUFFERS = _field("uint64_t")
    BLOCK_WORDS = _field("uint64_t")


class Block(Layout):
    """Argument block of a kernel, followed by a ``Slot`` for each buffer (``vyre.emit.llvm.shell.HEAD_WORDS``)."""

    STOP = _field("stop_word *")
    GRID = _field("uint64_t", 3)


class Slot(Layout):
    """A buffer in an argument block; in a frame, the address bits that must be zero stand in place of the address."""

    ADDRESS = _field("uint64_t")
    LENGTH = _field("uint64_t")


class Interrupts(Layout):
    """State of the SIGINT handler. Python clears ``ARRIVED`` before a launch that a signal is to interrupt."""

    ARRIVED = _field(_COUNTER)
    STOP = _field("_Atomic(stop_word *)")
    HANDLERS = _field(_COUNTER)
    PREVIOUS = _field("_Atomic(signal_handler *)")


STRUCTS: Final[tuple[type[Layout], ...]] = (
    Job, Pool, Part, Edit, Node, Watch, Run, Frame, Block, Slot, Interrupts,
)  # fmt: skip
