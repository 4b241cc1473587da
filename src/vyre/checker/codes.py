"""Which rules can a program break? The one table of diagnostic codes; documentation is generated from it.

Codes are append-only: a number never changes its meaning and is never used again.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec

from vyre.ir.limits import (
    MAX_BUFFERS,
    MAX_ELEMENTS,
    MAX_EXPRESSION_DEPTH,
    MAX_EXPRESSIONS,
    MAX_NESTING,
    MAX_PAYLOAD_BYTES,
    MAX_STATEMENTS,
    MAX_SUBGROUP_SIZE,
    MAX_WORKGROUP_INVOCATIONS,
)


class Severity(Enum):
    """Whether a diagnostic makes a program illegal."""

    ERROR = "error"
    WARNING = "warning"


class Rule(msgspec.Struct, frozen=True):
    """One row: what is wrong in a few words, the rule itself, and what to do when nothing more special is known."""

    code: str
    title: str
    doc: str
    fix: str
    severity: Severity = Severity.ERROR


_ROWS: Final = (
    Rule("V008", "name already visible", "A let or a loop may not declare a name that is already visible; "
         "sibling scopes may use one name each.", "choose another name, or assign to the variable without let."),
    Rule("V009", "atomic on a read-only buffer", "Atomics need a readwrite buffer or workgroup memory.",
         "declare the buffer readwrite, or use a plain load."),
    Rule("V010", "barrier in divergent control flow", "Either every invocation of a workgroup that has not returned "
         "reaches a barrier, or none does.", "move the barrier out of the divergent branch or loop, and guard the "
         "work around it instead."),
    Rule("V011", "assignment to a loop variable", "The variable of a for loop is immutable.",
         "assign to a variable of your own, declared with let."),
    Rule("V012", "illegal cast", "A bitcast keeps the bits, so both types have the same width.",
         "use a type of the same width, or convert the value with a cast."),
    Rule("V014", "atomic on a type without atomics", "Atomics work on u32, i32, u64 and i64 elements.",
         "declare the buffer as u32, i32, u64 or i64."),
    Rule("V016", "unknown operation", "A call names a registered operation.",
         "register the operation with vyre.ir.extensions.register_op before checking."),
    Rule("V018", "statements nest too deeply", f"Statement lists nest at most {MAX_NESTING} deep.",
         "move inner parts into fewer levels, for example by joining conditions with &."),
    Rule("V019", "too many statements", f"A program has at most {MAX_STATEMENTS:,} statements.",
         "use loops, or split the program into several."),
    Rule("V020", "wrong number of arguments", "A call gives one argument for each parameter of its operation.",
         "give one argument for each parameter."),
    Rule("V027", "index is not u32", "An element's index is a u32.", "cast the index: u32(...)."),
    Rule("V028", "operands of fma", "fma takes three operands of one type, f32 or f64.",
         "cast the operands to f32 or to f64."),
    Rule("V029", "arms of select differ", "Both values of a select have one type.", "cast one of them."),
    Rule("V033", "expression too deep", f"Expressions nest at most {MAX_EXPRESSION_DEPTH:,} deep.",
         "bind parts of the expression to variables with let."),
    Rule("V036", "constant index out of bounds", "The access is outside the buffer on every run: a load gives zero, "
         "a store vanishes.", "use an index below the buffer's count.", Severity.WARNING),
    Rule("V041", "subgroup operation without the capability", "The target has no subgroup operations.",
         "use workgroup memory, or choose a backend with subgroup operations."),
    Rule("V042", "memory order illegal for an atomic", "grid_sync is for barriers; a load cannot release, a store "
         "cannot acquire.", "leave the order out (seq_cst), or choose one that this atomic has."),
    Rule("V043", "memory order illegal for a barrier", "A barrier orders memory, so it cannot be relaxed.",
         "leave the order out (seq_cst), or write acquire, release or acq_rel."),
    Rule("V045", "assignment changes a type", "A variable keeps the type of its let.", "cast the value."),
    Rule("V046", "collective misuse", "A collective works on whole storage buffers: what it reads is readable, what "
         "it writes is writable, both have one type, and the root is a rank.", "use readwrite storage of one type."),
    Rule("V050", "malformed node", "Every field of a node holds what the node's class declares.",
         "build nodes with the functions of vyre.ir."),
    Rule("V051", "undeclared variable", "A variable is declared by let or by a loop before it is used.",
         "declare it with let in this list or an enclosing one."),
    Rule("V052", "undeclared buffer", "A program declares the buffers that it touches.", "declare the buffer."),
    Rule("V053", "duplicate buffer name", "Each buffer has a name of its own.", "rename one of them."),
    Rule("V054", "duplicate binding", "Each host buffer has a binding of its own.", "give it another binding."),
    Rule("V055", "not a name", "Names of programs, buffers and variables are identifiers that are not reserved.",
         "use letters, digits and _, not starting with a digit, and no reserved word."),
    Rule("V056", "write to a buffer that is not writable", "Stores and transfers write readwrite, writeonly, output "
         "and workgroup buffers.", "declare the buffer readwrite."),
    Rule("V057", "read of a write-only buffer", "A writeonly buffer cannot be read.", "declare the buffer readwrite."),
    Rule("V058", "workgroup size", f"Each axis of a workgroup is at least 1, and a workgroup has at most "
         f"{MAX_WORKGROUP_INVOCATIONS:,} invocations.", f"choose three axes from 1 whose product is at most "
         f"{MAX_WORKGROUP_INVOCATIONS:,}."),
    Rule("V059", "types differ", "Operands have one common type, arguments the types of their parameters; nothing is "
         "converted silently.", "cast one of them."),
    Rule("V060", "operator not defined for the type", "Each operator lists the types it has.",
         "cast the operands to a type that has the operator."),
    Rule("V061", "unknown operator", "Operators are those of the table.", "use the name of an operator."),
    Rule("V062", "not a bool", "Conditions and predicates are bool.", "compare the value: != 0."),
    Rule("V063", "axis outside 0..2", "A grid has the axes 0, 1 and 2.", "use axis 0, 1 or 2."),
    Rule("V064", "value of another type than the buffer", "A value that is stored has the buffer's element type.",
         "cast the value to the element type."),
    Rule("V065", "loop bound is not u32", "Both bounds of a for loop are u32.", "cast the bound: u32(...)."),
    Rule("V066", "jump outside a loop", "break and continue stand inside a loop.",
         "remove it, or use return to end the invocation."),
    Rule("V067", "unreachable statements", "No path reaches these statements.", "remove them.", Severity.WARNING),
    Rule("V068", "grid_sync in control flow that is not grid-uniform", "Either every invocation of the grid that has "
         "not returned reaches a grid_sync, or none does.", "move the grid_sync out of the branch or loop, and guard "
         "the work around it instead."),
    Rule("V069", "grid-wide point in control flow that is not grid-uniform", "Resumes and collectives are reached by "
         "the whole grid or by none of it.", "move it out of the branch or loop."),
    Rule("V070", "wait without a transfer", "A wait completes a transfer of its tag that was issued before on every "
         "path.", "issue the transfer before the wait, on every path."),
    Rule("V071", "transfer already pending", "At most one transfer of a tag is pending.",
         "wait for the first one, or use another tag."),
    Rule("V072", "transfer still pending", "Every transfer is waited for before the invocation ends.",
         "wait for it before."),
    Rule("V073", "transfer pending on some paths only", "Wherever paths meet, a transfer is pending on all of them or "
         "on none.", "issue and wait on the same paths."),
    Rule("V074", "operand is not u32", "Offsets, sizes, lanes and addresses are u32.", "cast the operand: u32(...)."),
    Rule("V075", "misplaced indirect_dispatch", "The grid is decided before the program starts: indirect_dispatch is "
         "the first statement, once.", "make it the first statement of the program."),
    Rule("V076", "illegal indirect count", "The three counts are u32 elements of a host buffer that takes an input, "
         "at an offset that is a multiple of 4, inside the buffer.", "point at three u32 of an input buffer."),
    Rule("V077", "workgroup memory without a size", "Workgroup memory has a count.", "give it a count."),
    Rule("V078", "illegal output byte range", "A byte range start..stop has start <= stop, lies inside the buffer, and "
         "stands on a buffer that gives an output.", "give a range inside an output buffer, or none."),
    Rule("V079", "illegal element count", f"A buffer has from 0 (sized at run time) to {MAX_ELEMENTS:,} elements.",
         f"choose a count from 0 to {MAX_ELEMENTS:,}."),
    Rule("V080", "illegal binding", "A binding is a number from 0 to 2^32 - 1.", "choose a binding from 0."),
    Rule("V081", "illegal literal", "A literal's bits fit its type, and a NaN has the canonical bits.",
         "make literals with vyre.ir.lit(value, dtype)."),
    Rule("V082", "illegal subgroup size", f"The subgroup size is a power of two from 1 to {MAX_SUBGROUP_SIZE}.",
         f"choose a power of two up to {MAX_SUBGROUP_SIZE}."),
    Rule("V083", "illegal reduction", "Reductions are add, min, max (numbers) and and, or, xor (integers, bool).",
         "use a reduction that the type has."),
    Rule("V084", "unknown or misused extension", "An opaque node names a registered extension, which expands its "
         "payload to an expression or to statements, as the node is one.",
         "register the extension with vyre.ir.extensions.register_extension before checking, and use it as what it "
         "stands for: OpaqueExpr for an expression, OpaqueStmt for statements."),
    Rule("V085", "payload too large", f"A payload has at most {MAX_PAYLOAD_BYTES:,} bytes.", "make it smaller."),
    Rule("V086", "operands of an atomic", "A load has no value, all others have one; compare_exchange alone has an "
         "expected value.", "give exactly the operands that the atomic takes."),
    Rule("V087", "too many expressions", f"A program has at most {MAX_EXPRESSIONS:,} expression nodes; a shared one "
         "counts at each use.", "bind a subexpression that is used often to a variable with let."),
    Rule("V088", "too many buffers", f"A program has at most {MAX_BUFFERS:,} buffers.", "join some of them."),
    Rule("V089", "type without the capability", "The target lacks the type.",
         "cast to a type it has, or choose another backend."),
    Rule("V090", "64-bit atomics without the capability", "The target has atomics on 32-bit elements alone.",
         "use u32 or i32, or choose another backend."),
    Rule("V091", "transfer pending over a trap", "An invocation that parks has no pending transfers, and none are "
         "pending where it goes on.", "wait for the transfers before the trap, and before its resume."),
    Rule("V092", "diagnostics left out", "Only the first diagnostics are listed.",
         "fix those that are listed, then check again.", Severity.WARNING),
    Rule("V093", "expansion breaks a rule", "A call or an extension must be legal where it is used, as if its "
         "definition stood there.", "change the definition, or use it elsewhere."),
    Rule("V094", "output that gives nothing", "Read-only, uniform and workgroup buffers give no output.",
         "declare the buffer output or readwrite, or remove the mark."),
    Rule("V095", "invocations store different values in one element", "Every invocation stores its own value at one "
         "index: which one stays is not defined.", "store at an index of the invocation's own, guard the store with a "
         "condition that one invocation meets, or combine the values with an atomic.", Severity.WARNING),
    Rule("V096", "copy within one buffer", "copy_bytes moves bytes from one buffer to another.",
         "copy through a second buffer."),
)  # fmt: skip

CODES: Final[dict[str, Rule]] = {row.code: row for row in _ROWS}
