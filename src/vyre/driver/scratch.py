"""Scratch memory: device memory that dispatches borrow, kept for the next one within a bound."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Final

from vyre.driver.device import Device, Handle
from vyre.errors import report_cleanup

_MOST_KEPT_BYTES: Final = 256 << 20
_LEAST_BYTES: Final = 256
_LARGE_BYTES: Final = 1 << 20


class Scratch:
    """Borrows memory from a device; what came back is used again by requests of about the same size."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._lock = Lock()
        # By size, the least recently used first.
        self._kept: OrderedDict[int, list[Handle]] = OrderedDict()
        self._kept_bytes = 0

    @contextmanager
    def borrowed(self, byte_lens: Sequence[int]) -> Iterator[list[Handle]]:
        """Memory for the time of a block. After a failure it is freed, not kept: the device may have left it in use."""
        if not byte_lens:
            yield []
            return
        sizes = [_rounded(size) for size in byte_lens]
        handles: list[Handle] = []
        try:
            handles.extend(map(self._take, sizes))
            yield handles
        except BaseException as error:
            self._free(handles, error)
            raise
        # The block may have exchanged entries of its own list, and memory of one size is alike.
        self._keep(sizes, handles)

    def _take(self, size: int) -> Handle:
        with self._lock:
            kept = self._kept.get(size)
            if kept:
                self._kept_bytes -= size
                handle = kept.pop()
                if not kept:
                    del self._kept[size]
                return handle
        return self._device.allocate(size)

    def _keep(self, sizes: Sequence[int], handles: Sequence[Handle]) -> None:
        surplus: list[Handle] = []
        with self._lock:
            # Taken and kept from the same end, in opposite orders: the next borrower of these sizes gets each memory in
            # the same place, and finds bindings that were made for it.
            for size, handle in zip(reversed(sizes), reversed(handles), strict=True):
                if size > _MOST_KEPT_BYTES:
                    surplus.append(handle)
                    continue
                self._kept.setdefault(size, []).append(handle)
                self._kept.move_to_end(size)
                self._kept_bytes += size
            while self._kept_bytes > _MOST_KEPT_BYTES:
                oldest = next(iter(self._kept))
                surplus.append(self._kept[oldest].pop(0))
                self._kept_bytes -= oldest
                if not self._kept[oldest]:
                    del self._kept[oldest]
        self._free(surplus, None)

    def _free(self, handles: Sequence[Handle], error: BaseException | None) -> None:
        failures: list[Exception] = []
        for handle in handles:
            try:
                self._device.free(handle)
            except Exception as failure:
                failures.append(failure)
        if not failures:
            return
        if error is None:
            report_cleanup(failures[0], failures[1:])
            raise failures[0]
        report_cleanup(error, failures)

    def clear(self) -> None:
        """Free everything that is kept."""
        with self._lock:
            kept = [handle for handles in self._kept.values() for handle in handles]
            self._kept.clear()
            self._kept_bytes = 0
        self._free(kept, None)

    def forget(self) -> None:
        """Drop what is kept, which was lost with its device."""
        with self._lock:
            self._kept.clear()
            self._kept_bytes = 0


def _rounded(byte_len: int) -> int:
    """Sizes that are used again: powers of two, and above a mebibyte whole mebibytes."""
    if byte_len <= _LARGE_BYTES:
        return max(_LEAST_BYTES, 1 << max(0, byte_len - 1).bit_length())
    return -(-byte_len // _LARGE_BYTES) * _LARGE_BYTES
