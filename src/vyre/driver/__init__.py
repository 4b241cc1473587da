"""How does a host run programs? The contract, resident data, sequences, routes, caches and telemetry."""

from vyre.driver import trace as _trace
from vyre.driver.backend import Availability, Backend
from vyre.driver.binding import BindingPlan, Bound, BufferBinding, binder_of
from vyre.driver.config import DispatchConfig
from vyre.driver.fixpoint import Passes, run_to_fixpoint
from vyre.driver.forwarding import ForwardingBackend
from vyre.driver.outputs import OutputBuffers, OutputStats
from vyre.driver.pending import PendingDispatch
from vyre.driver.pipeline import CompiledPipeline, pipeline_key
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
    "CompiledPipeline",
    "DeviceProfile",
    "DispatchConfig",
    "ForwardingBackend",
    "OutputBuffers",
    "OutputStats",
    "Passes",
    "PendingDispatch",
    "PreparedSequence",
    "ReadRange",
    "ResidentBuffer",
    "SequenceResult",
    "Step",
    "TimedResult",
    "Timing",
    "Unchanged",
    "Zero",
    "add_timings",
    "binder_of",
    "list_backends",
    "pipeline_key",
    "run_to_fixpoint",
]

_trace.start_from_environment()
