"""How do I write a program? ``@vyre.kernel`` on a Python function, called on NumPy arrays and on resident ones."""

from vyre.lang.annotations import In, InOut, Out
from vyre.lang.arrays import DeviceArray, array
from vyre.lang.functions import Function, function
from vyre.lang.intrinsics import INTRINSICS, Intrinsic
from vyre.lang.kernel import BoundCall, Kernel, Launch, kernel
from vyre.lang.sequences import Sequence, sequence

__all__ = [
    "INTRINSICS",
    "BoundCall",
    "DeviceArray",
    "Function",
    "In",
    "InOut",
    "Intrinsic",
    "Kernel",
    "Launch",
    "Out",
    "Sequence",
    "array",
    "function",
    "kernel",
    "sequence",
]
