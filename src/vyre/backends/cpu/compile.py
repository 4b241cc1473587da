"""LLVM IR to machine code: verified on request, optimized by a few passes, stored as object code, loaded.

IR that LLVM rejects raises KernelCompileFailed with its source. Other faults of LLVM ("LLVM ERROR: Cannot select") end
the process: LLVM calls ``abort``, and llvmlite cannot prevent it. The emitter must not write such a kernel, and object
code from a file is checked before LLVM sees it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from hashlib import blake2b
from threading import Lock
from typing import Any, Final

import llvmlite
import llvmlite.binding as llvm
import msgspec

from vyre.backends.cpu.object_file import is_loadable, packed, unpacked
from vyre.driver import trace
from vyre.driver.cache import DiskCache
from vyre.emit.llvm import KERNEL
from vyre.errors import KernelCompileFailed

_LOCK: Final = Lock()
# Part of the cache key of object code: counts up when other code is made of the same text.
PIPELINE: Final = 7
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
# For unoptimized code: they take less time than instruction selection then saves. Only combining folds constants in
# vectors, and LLVM may end the process where they are left to instruction selection.
_QUICK_PASSES: Final = (
    "add_sroa_pass",
    "add_sccp_pass",
    "add_instruction_combine_pass",
    "add_simplify_cfg_pass",
)
# For huge programs: combining and value numbering take time that grows faster than the program.
_PASSES_OF_HUGE: Final = ("add_sroa_pass", "add_sccp_pass", "add_simplify_cfg_pass", "add_aggressive_dce_pass")
# A word of memory in every module. With it comes a page, whose rest LLVM's loader uses for the addresses of functions
# that the code calls; it allocates memory before it knows how many there are, and ends the process if there is none.
_ROOM: Final = "\n@vyre.room = weak global i64 0\n"


class Machine(msgspec.Struct, frozen=True):
    """Target of the machine code: name, features, and lanes of 32 bits in a vector."""

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


def _effort(size: int, optimize: bool | None) -> int:
    """The level of code generation; beyond a size, its time grows faster than the program."""
    return 2 if optimize and size < _LARGE_TEXT else 0


@contextmanager
def _parsed(text: str) -> Iterator[Any]:
    """A module for the time of a block.

    Types, constants and metadata stay as long as their context: one for each module lets them go with it. A module has
    to go first, which the garbage collector does not promise, so both are closed here.
    """
    with llvm.create_context() as context, llvm.parse_assembly(text + _ROOM, context) as module:
        yield module


@contextmanager
def _module(text: str, *, verify: bool, optimize: bool | None) -> Iterator[Any]:
    """An optimized module for the time of a block."""
    with _parsed(text) as module:
        if verify:
            module.verify()
        yield _optimized(module, len(text), optimize=optimize)


@cache
def _pass_builder(level: int) -> Any:
    tuning = llvm.create_pipeline_tuning_options(speed_level=2)
    # The code is vectorized already, and for the full width: more vectors, or more copies, only cost time.
    tuning.loop_vectorization = tuning.slp_vectorization = tuning.loop_unrolling = False
    return llvm.create_pass_builder(_target_machine(level), tuning)


@cache
def _function_passes(level: int) -> Any:
    # Made once: llvmlite does not free the passes of a manager, some tens of kilobytes for each.
    return _pass_builder(level).getFunctionPassManager()


@cache
def _module_passes(names: tuple[str, ...]) -> Any:
    passes = llvm.create_new_module_pass_manager()
    for name in names:
        getattr(passes, name)()
    return passes


def _optimized(module: Any, size: int, *, optimize: bool | None) -> Any:
    level = _effort(size, optimize)
    module.triple = llvm.get_process_triple()
    module.data_layout = str(_target_machine(level).target_data)
    if optimize is None:
        return module
    if optimize and size < _LARGE_TEXT:
        # A kernel is one function: what LLVM does for modules beyond that is to combine its instructions again.
        passes, builder = _function_passes(level), _pass_builder(level)
        for function in module.functions:
            if not function.is_declaration:
                passes.run(function, builder)
        return module
    names = _PASSES_OF_HUGE if size >= _HUGE_TEXT else _PASSES_OF_LARGE if optimize else _QUICK_PASSES
    _module_passes(names).run(module, _pass_builder(level))
    return module


@contextmanager
def _llvm_errors(text: str) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise KernelCompileFailed("cpu", str(error), text) from None


def object_code(text: str, *, verify: bool = False, optimize: bool | None = True) -> bytes:
    """The object code of a module; None for IR that is already optimized, which gets only instruction selection."""
    with _LOCK, _llvm_errors(text), _module(text, verify=verify, optimize=optimize) as module:
        code: bytes = _target_machine(_effort(len(text), optimize)).emit_object(module)
        return code


def linked_object_code(texts: Mapping[str, str]) -> bytes:
    """Return unoptimized object code of several modules linked into one, with each kernel under its key."""
    errors = _llvm_errors("\n".join(texts.values()))
    with _LOCK, errors, llvm.create_context() as context, llvm.parse_assembly("", context) as whole:
        for name, text in texts.items():
            # Linking takes the module; before, it is closed with the block.
            with llvm.parse_assembly(text + _ROOM, context) as module:
                module.get_function(KERNEL).name = name
                whole.link_in(_optimized(module, len(text), optimize=False))
        code: bytes = _target_machine(0).emit_object(whole)
        return code


def kept_object_code(
    disk: DiskCache, name: str, text: str, *, verify: bool = False, optimize: bool | None = True
) -> tuple[bytes, bool]:
    """The object code of a module, from the disk or made and stored there, and whether it came from the disk.

    Stored code that LLVM could not load is removed and made again.
    """
    facts = machine_facts()
    key = blake2b(msgspec.msgpack.encode((text, *facts, optimize)), digest_size=32).digest()
    stored = disk.get(key)
    if stored is not None:
        code = unpacked(stored, facts)
        if code is not None and can_be_loaded(code):
            return code, True
        disk.discard(key)
    with trace.span("compile", "cpu", program=name):
        code = object_code(text, verify=verify, optimize=optimize)
    disk.put(key, packed(code, facts))
    return code, False


@cache
def machine_facts() -> tuple[str, ...]:
    """What object code depends on beside its text: the machine and the compiler."""
    machine = this_machine()
    return llvm.get_process_triple(), machine.cpu, machine.features, llvmlite.__version__, str(PIPELINE)


def can_be_loaded(code: bytes) -> bool:
    """Whether object code from a file can be given to LLVM, which would end the process over what is malformed."""
    return is_loadable(code, _is_symbol_of_process)


def _is_symbol_of_process(name: str) -> bool:
    _open_process()
    return llvm.address_of_symbol(name) is not None


@cache
def _open_process() -> None:
    # The first engine of a process makes the symbols of its libraries known to LLVM.
    Loaded()


def assembly(text: str) -> str:
    """The machine instructions of a module as text."""
    with _LOCK, _llvm_errors(text), _module(text, verify=True, optimize=True) as module:
        listing: str = _target_machine(_effort(len(text), True)).emit_assembly(module)
        return listing


class Loaded:
    """Object code in memory, which is freed with this object; the caller keeps it while a function of it runs."""

    def __init__(self, *codes: bytes) -> None:
        with _LOCK:
            empty = llvm.parse_assembly("")
            # LLVM ends the process if a section is further from another than its code can reach: llvmlite's memory
            # manager puts all sections of an object into one block.
            self._engine = llvm.create_mcjit_compiler(empty, _new_target_machine(), use_lmm=True)
            for code in codes:
                self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
            self._engine.finalize_object()

    def address(self, name: str) -> int:
        """The address of a function; KernelCompileFailed if the code has none of that name."""
        address: int = self._engine.get_function_address(name)
        if not address:
            raise KernelCompileFailed("cpu", f"the object code has no function '{name}'")
        return address


def _new_target_machine() -> Any:
    # The engine owns the target machine it is given.
    machine = this_machine()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    return target.create_target_machine(cpu=machine.cpu, features=machine.features, opt=2, reloc="pic", jit=True)
