"""The ``webgpu`` backend: any GPU through Vulkan, Metal or D3D12, or a software implementation of one."""

from __future__ import annotations

from vyre.backends.webgpu import adapters
from vyre.backends.webgpu.device import WebGpuDevice
from vyre.backends.webgpu.gpu import Gpu
from vyre.driver.backend import Backend
from vyre.driver.device import Availability
from vyre.driver.executable import Executable


class WebGpuExecutable(Executable):
    """A program compiled for WebGPU."""

    def wgsl(self) -> str:
        """Return the WGSL of the program's launches, for grids that fit the device's axes."""
        device = self.backend.device
        assert isinstance(device, WebGpuDevice)  # WebGpuBackend has no other
        return "\n".join(code.kernel(device.gpu, folded=code.is_indirect).text for _, _, code in self.launched())


class WebGpuBackend(Backend):
    """Any GPU through WebGPU: every type but f64, integers exact everywhere, floats where the device's are."""

    id = "webgpu"
    version = WebGpuDevice.version
    executable_class = WebGpuExecutable
    device: WebGpuDevice

    def __init__(self, *, adapter: str | None = None) -> None:
        """``adapter`` is a part of the name of the adapter to use; the best one, if it is left out."""
        super().__init__(WebGpuDevice(adapter))

    @classmethod
    def availability(cls) -> Availability:
        return adapters.availability()

    @property
    def gpu(self) -> Gpu:
        """The device, opened when it is first needed."""
        return self.device.gpu
