"""How large may a program be?

The checker names a program that is over a limit; the wire decoder and the parser enforce the same limits while
they read, so hostile input cannot make them spend more than a legal program could.
"""

from typing import Final

MAX_NESTING: Final = 64
MAX_EXPRESSION_DEPTH: Final = 1_024
MAX_STATEMENTS: Final = 1_000_000
# Counted as a tree: an expression object used twice counts twice, because each use is evaluated on its own.
MAX_EXPRESSIONS: Final = 8_000_000
MAX_BUFFERS: Final = 1_024
MAX_NAME_LENGTH: Final = 256
MAX_PAYLOAD_BYTES: Final = 1 << 20
MAX_WORKGROUP_INVOCATIONS: Final = 1_024
MAX_ELEMENTS: Final = (1 << 32) - 1
# Of a launch, along one axis. Ids are u32: the ids of a vector do not wrap around, nor does an id with a small offset.
MAX_AXIS_INVOCATIONS: Final = (1 << 32) - (1 << 16)
MAX_SUBGROUP_SIZE: Final = 32
MAX_TEXT_BYTES: Final = 64 << 20
MAX_WIRE_BYTES: Final = 64 << 20
