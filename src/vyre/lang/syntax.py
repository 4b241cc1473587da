"""Which parts of Python are no part of a kernel, and what is written instead?"""

from __future__ import annotations

import ast
from typing import Final

from vyre.lang.source import Source

_LOOP: Final = "write a for loop over range(...)."
_NO_STRINGS: Final = "write numbers into an array, and make text of them on the host."
_UNSUPPORTED: Final[dict[type[ast.AST], tuple[str, str]]] = {
    ast.FunctionDef: ("a function inside a kernel", "define it outside, with @vyre.function."),
    ast.AsyncFunctionDef: ("a function inside a kernel", "define it outside, with @vyre.function."),
    ast.Lambda: ("`lambda`", "define a function outside, with @vyre.function."),
    ast.ClassDef: ("a class", "keep data in arrays."),
    ast.Delete: ("`del`", "leave the name alone."),
    ast.AsyncFor: ("`async for`", _LOOP),
    ast.With: ("`with`", "write its work out."),
    ast.AsyncWith: ("`async with`", "write its work out."),
    ast.Match: ("`match`", "write if, elif and else."),
    ast.Raise: ("`raise`", "write what went wrong into an array, and raise on the host."),
    ast.Try: ("`try`", "nothing in a kernel raises: test for the case with if."),
    ast.TryStar: ("`try`", "nothing in a kernel raises: test for the case with if."),
    ast.Assert: ("`assert`", "write the failing case into an array, or check it on the host."),
    ast.Import: ("`import`", "import at the top of the file."),
    ast.ImportFrom: ("`import`", "import at the top of the file."),
    ast.Global: ("`global`", "pass the value as an argument, and give results back in arrays."),
    ast.Nonlocal: ("`nonlocal`", "pass the value as an argument, and give results back in arrays."),
    ast.NamedExpr: ("`:=`", "assign on a line of its own."),
    ast.Dict: ("a dict", "use arrays."),
    ast.Set: ("a set", "use arrays."),
    ast.List: ("a list", "use an array, or workgroup memory: vyre.shared(f32, 64)."),
    ast.ListComp: ("a comprehension", _LOOP),
    ast.SetComp: ("a comprehension", _LOOP),
    ast.DictComp: ("a comprehension", _LOOP),
    ast.GeneratorExp: ("a generator", _LOOP),
    ast.Await: ("`await`", "leave it out."),
    ast.Yield: ("`yield`", "store each value in an array."),
    ast.YieldFrom: ("`yield`", "store each value in an array."),
    ast.JoinedStr: ("a formatted string", _NO_STRINGS),
    ast.Starred: ("`*`", "write the values one by one."),
    ast.Is: ("`is`", "compare with ==."),
    ast.IsNot: ("`is not`", "compare with !=."),
    ast.In: ("`in`", "compare with ==, or loop over the elements."),
    ast.NotIn: ("`not in`", "compare with !=, or loop over the elements."),
}


def check_syntax(source: Source) -> None:
    """Refuses the first thing in a function's body that the language does not have."""
    found = [
        (getattr(at, "lineno", 0), getattr(at, "col_offset", 0), at, *why)
        for statement in source.tree.body
        for at, why in _unsupported(statement)
    ]
    if found:
        _, _, node, what, fix = min(found, key=lambda one: one[:2])
        raise source.error(node, f"{what} is no part of the language.", fix)


def _unsupported(statement: ast.stmt) -> list[tuple[ast.AST, tuple[str, str]]]:
    found: list[tuple[ast.AST, tuple[str, str]]] = []
    for node in ast.walk(statement):
        if type(node) in _UNSUPPORTED and not isinstance(node, ast.cmpop):
            found.append((node, _UNSUPPORTED[type(node)]))
        elif isinstance(node, ast.Compare):
            found += [(node, _UNSUPPORTED[type(op)]) for op in node.ops if type(op) in _UNSUPPORTED]
        elif isinstance(node, (ast.For, ast.While)) and node.orelse:
            found.append((node.orelse[0], ("else of a loop", "set a variable before the break, and test it after.")))
        elif isinstance(node, ast.Name) and node.id == "print":
            found.append((node, ("`print`", "run kernel.debug(...), or store the value in an array.")))
    return found
