"""How does LLVM IR become machine code? Verified if asked, optimised by a few passes, kept as object code.

What LLVM refuses is KernelCompileFailed, with the source. What it gives up on ("LLVM ERROR: Cannot select" and other
faults of its own) ends the process: LLVM calls ``abort``, and llvmlite has nothing to put in its place. Such a kernel
is a fault of the emitter, which must not write it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from ctypes import CFUNCTYPE, c_int64, c_void_p
from functools import cache
from hashlib import blake2b
from threading import Lock
from typing import Any, Final

import llvmlite
import llvmlite.binding as llvm
import msgspec

from vyre.driver import trace
from vyre.driver.cache import DiskCache
from vyre.emit.llvm import KERNEL
from vyre.errors import KernelCompileFailed

_LOCK: Final = Lock()
# Part of what object code is kept by: counts up when other code is made of the same text.
PIPELINE: Final = 6
_LARGE_TEXT: Final = 1 << 20
_HUGE_TEXT: Final = 4 << 20
_PASSES_OF_LARGE: Final = (
    "add_sroa_pass",
    "add_instruction_combine_pass",
    "add_simplify_cfg_pass",
    "add_new_gvn_pass",
    "add_instruction_combine_pass",
    "add_simplify_cfg_pass",
)
# For those who ask for code soon: less than instruction selection then saves. Constants in vectors are found by
# combining alone, and LLVM may break off, and the process with it, where only the selection finds them.
_QUICK_PASSES: Final = (
    "add_sroa_pass",
    "add_sccp_pass",
    "add_instruction_combine_pass",
    "add_simplify_cfg_pass",
)
# For huge programs: combining and numbering take time that grows faster than the program.
_PASSES_OF_HUGE: Final = ("add_sroa_pass", "add_sccp_pass", "add_simplify_cfg_pass", "add_aggressive_dce_pass")
# A word of memory that is in every module. With it comes a page, in the rest of which LLVM's loader has room for the
# addresses of what the code calls; it asks for memory before it knows how many there are, and ends the process if there
# is none.
_ROOM: Final = "\n@vyre.room = weak global i64 0\n"


class Machine(msgspec.Struct, frozen=True):
    """The machine code is for: its name, and how many lanes of 32 bits its vectors have."""

    cpu: str
    features: str
    width: int

    @property
    def has_half_conversions(self) -> bool:
        return "x86" not in llvm.get_process_triple() or "+f16c" in self.features.split(",")


@cache
def this_machine() -> Machine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features()
    width = 16 if features.get("avx512f") and features.get("avx512vl") else 8 if features.get("avx2") else 4
    return Machine(llvm.get_host_cpu_name(), features.flatten(), width)


@cache
def _target_machine(level: int) -> Any:
    machine = this_machine()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    # No extra registers are to be saved for vectors of 512 bits: the explicit width is what the emitter chose.
    features = f"{machine.features},-prefer-256-bit"
    return target.create_target_machine(
        cpu=machine.cpu, features=features, opt=level, reloc="pic", codemodel="small", jit=True
    )


def _effort(size: int, optimize: bool) -> int:
    """How hard to look for good instructions: beyond a size, the time for that grows faster than the program."""
    return 2 if optimize and size < _LARGE_TEXT else 0


def _parsed(text: str) -> Any:
    return llvm.parse_assembly(text + _ROOM)


def _module(text: str, *, verify: bool, optimize: bool) -> Any:
    module = _parsed(text)
    if verify:
        module.verify()
    return _improved(module, len(text), optimize=optimize)


def _improved(module: Any, size: int, *, optimize: bool) -> Any:
    target = _target_machine(_effort(size, optimize))
    module.triple = llvm.get_process_triple()
    module.data_layout = str(target.target_data)
    tuning = llvm.create_pipeline_tuning_options(speed_level=2)
    # The code is in vectors already, and wide ones: more of them, or more copies, only cost time.
    tuning.loop_vectorization = tuning.slp_vectorization = tuning.loop_unrolling = False
    builder = llvm.create_pass_builder(target, tuning)
    if optimize and size < _LARGE_TEXT:
        # A kernel is one function: what LLVM does for modules beyond that is to combine its instructions again.
        of_functions = builder.getFunctionPassManager()
        for function in module.functions:
            if not function.is_declaration:
                of_functions.run(function, builder)
        return module
    passes = llvm.create_new_module_pass_manager()
    for name in _PASSES_OF_HUGE if size >= _HUGE_TEXT else _PASSES_OF_LARGE if optimize else _QUICK_PASSES:
        getattr(passes, name)()
    passes.run(module, builder)
    return module


@contextmanager
def _refusals(text: str) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise KernelCompileFailed("cpu", str(error), text) from None


def selected_object_code(text: str) -> bytes:
    """Object code of a module whose IR is already optimized: no passes, only instruction selection."""
    with _LOCK, _refusals(text):
        module, target = _parsed(text), _target_machine(0)
        module.triple = llvm.get_process_triple()
        module.data_layout = str(target.target_data)
        code: bytes = target.emit_object(module)
        return code


def object_code(text: str, *, verify: bool = False, optimize: bool = True) -> bytes:
    """The object code of a module."""
    with _LOCK, _refusals(text):
        module = _module(text, verify=verify, optimize=optimize)
        code: bytes = _target_machine(_effort(len(text), optimize)).emit_object(module)
        return code


def linked_object_code(texts: Mapping[str, str], *, optimize: bool) -> bytes:
    """The object code of several modules in one, where each one's kernel has the name it goes by here."""
    with _LOCK, _refusals("\n".join(texts.values())):
        whole = llvm.parse_assembly("")
        size = max(map(len, texts.values()), default=0)
        for name, text in texts.items():
            module = _parsed(text)
            module.get_function(KERNEL).name = name
            whole.link_in(_improved(module, size, optimize=optimize))
        code: bytes = _target_machine(_effort(size, optimize)).emit_object(whole)
        return code


def kept_object_code(
    disk: DiskCache, name: str, text: str, *, verify: bool = False, optimize: bool = True
) -> tuple[bytes, bool]:
    """The object code of a module, from the disk if it is there, and whether it was."""
    return _kept(disk, name, text, optimize, lambda: object_code(text, verify=verify, optimize=optimize))


def kept_selected_object_code(disk: DiskCache, name: str, text: str) -> bytes:
    """Object code of a module whose IR is already optimized, from the disk if it is there."""
    return _kept(disk, name, text, None, lambda: selected_object_code(text))[0]


def _kept(
    disk: DiskCache, name: str, text: str, optimize: bool | None, make: Callable[[], bytes]
) -> tuple[bytes, bool]:
    machine = this_machine()
    parts = (text, machine.cpu, machine.features, llvmlite.__version__, PIPELINE, optimize)
    key = blake2b(msgspec.msgpack.encode(parts), digest_size=32).digest()
    found = disk.get(key)
    if found is not None:
        return found, True
    with trace.span("compile", "cpu", program=name):
        code = make()
    disk.put(key, code)
    return code, False


def assembly(text: str) -> str:
    """The machine instructions of a module, for people."""
    with _LOCK, _refusals(text):
        listing: str = _target_machine(_effort(len(text), True)).emit_assembly(
            _module(text, verify=True, optimize=True)
        )
        return listing


class Loaded:
    """Object code in memory, and the functions in it."""

    def __init__(self, *codes: bytes) -> None:
        with _LOCK:
            empty = llvm.parse_assembly("")
            # All sections of a code in one piece of memory: where each goes where there is room, one may be further
            # from another than its code can reach, which ends the process.
            self._engine = llvm.create_mcjit_compiler(empty, _new_target_machine(), use_lmm=True)
            for code in codes:
                self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
            self._engine.finalize_object()

    def address(self, name: str) -> int:
        address: int = self._engine.get_function_address(name)
        return address


def _new_target_machine() -> Any:
    # The engine owns the target machine it is given.
    machine = this_machine()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    return target.create_target_machine(cpu=machine.cpu, features=machine.features, opt=2, reloc="pic", jit=True)


KernelFunction: Final = CFUNCTYPE(None, c_void_p, c_int64, c_int64)


def kernel_function(loaded: Loaded, name: str) -> Callable[[int, int, int], None]:
    """The kernel as a Python function; Python's lock is not held while it runs."""
    function: Callable[[int, int, int], None] = KernelFunction(loaded.address(name))
    return function
