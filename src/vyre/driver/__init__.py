"""The host side: backends for callers, devices for authors, resident data, sequences, caches and telemetry."""

from vyre.driver import trace as _trace
from vyre.driver.backend import Backend
from vyre.driver.binding import BindingPlan, Bound, BufferBinding, binder_of
from vyre.driver.compile import executable_key
from vyre.driver.config import DispatchConfig
from vyre.driver.device import Availability, Device, PreparedSchedule, Ran, RunOptions
from vyre.driver.executable import Executable
from vyre.driver.outputs import OutputBuffers, OutputStats
from vyre.driver.pending import PendingDispatch
from vyre.driver.profile import DeviceProfile
from vyre.driver.registry import BackendInfo, list_backends
from vyre.driver.resident import ReadRange, ResidentBuffer
from vyre.driver.sequence import PreparedSequence, SequenceResult, Step, Unchanged, Zero
from vyre.driver.timing import TimedResult, Timing, add_timings

__all__ = [
    "Availability",
    "Backend",
    "BackendInfo",
    "BindingPlan",
    "Bound",
    "BufferBinding",
    "Device",
    "DeviceProfile",
    "DispatchConfig",
    "Executable",
    "OutputBuffers",
    "OutputStats",
    "PendingDispatch",
    "PreparedSchedule",
    "PreparedSequence",
    "Ran",
    "ReadRange",
    "ResidentBuffer",
    "RunOptions",
    "SequenceResult",
    "Step",
    "TimedResult",
    "Timing",
    "Unchanged",
    "Zero",
    "add_timings",
    "binder_of",
    "executable_key",
    "list_backends",
]

_trace.start_from_environment()
