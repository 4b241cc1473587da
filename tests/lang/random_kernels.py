"""Random kernels as Python text: legal, and each invocation changes only what is its own."""

from __future__ import annotations

from random import Random
from typing import Final

TYPES: Final = ("u32", "i32", "f32", "u8", "i64", "f64")
INTEGERS: Final = ("u32", "i32", "u8", "i64")
ARRAYS: Final = {
    **{f"{kind}s": f"In[{kind}]" for kind in TYPES},
    **{f"own_{kind}": f"InOut[{kind}]" for kind in TYPES},
    **{f"grid_{kind}": f"InOut[{kind}, 2]" for kind in TYPES},
}
HEADER: Final = "import vyre\nfrom vyre import f32, f64, i32, i64, u8, u32\n\n"


class Writer:
    """Writes one module: a few functions and a kernel ``k``.

    ``names`` are the variables that surely have a value, by type; a name keeps its type wherever it is used.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.lines: list[str] = []
        self.depth = 1
        self.names: dict[str, str] = {}
        self.fixed: set[str] = set()
        self.loops = 0
        self.functions: list[tuple[str, str, str]] = []
        self.result: str | None = None
        self.budget = 0

    def write(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def pick(self, *options: str) -> str:
        return self.random.choice(options)

    def number(self, kind: str) -> str:
        if kind.startswith("f"):
            return self.pick("0.5", "2.0", "1e3", "3", "0.125")
        return self.pick("0", "1", "2", "3", "7", "100")

    def bare(self, kind: str) -> str:
        """A number without a type, or one of several that are chosen between when the kernel runs."""
        if self.random.random() < 0.5:
            return self.number(kind)
        a, b = self.pick("0", "1", "3"), self.pick("2", "5", "(1 if i < 2 else 4)")
        test = self.condition(1)
        chosen = self.pick(f"({a} if {test} else {b})", f"vyre.select({test}, {a}, {b})")
        return self.pick(chosen, f"({chosen} * 3 + 1)", f"(2 + {chosen})")

    def value(self, kind: str, depth: int = 3) -> str:
        """An expression of a type."""
        random = self.random
        known = [name for name, of in self.names.items() if of == kind]
        made = [(name, takes) for name, takes, gives in self.functions if gives == kind]
        if made and depth > 0 and random.random() < 0.3:
            # Beside a call that changes it, an element is read as it was before, or as it is after.
            name, takes = random.choice(made)
            call = f"{name}({self.value(takes, 0)}, i, {', '.join(ARRAYS)})"
            return self.pick(f"(own_{kind}[i] - {call})", f"({call} - own_{kind}[i])", f"min(own_{kind}[i], {call})")
        if depth == 0 or random.random() < 0.2:
            options = [f"{kind}({self.number(kind)})", f"{kind}s[{self.index()}]", f"grid_{kind}[i, {self.index()}]"]
            options.append(f"own_{kind}[i]")
            return random.choice(options + known * 3)
        a, b = self.value(kind, depth - 1), self.value(kind, depth - 1)
        match random.randrange(11):
            case 0 | 1 | 2 | 3:
                operators = ("+", "-", "*", "/", "%") if kind.startswith("f") else (*"+-*%&|^", "//", "<<", ">>")
                right = b if random.random() < 0.7 else self.bare(kind)
                return f"({a} {random.choice(operators)} {right})"
            case 4:
                return f"({a} if {self.condition(depth - 1)} else {b})"
            case 5:
                return f"vyre.select({self.condition(depth - 1)}, {a}, {b})"
            case 6:
                return f"{self.pick('min', 'max')}({a}, {b})"
            case 7:
                return f"{self.pick('-', '~')}{a}" if kind in ("i32", "i64") else f"abs({a})"
            case 8 if kind in ("u32", "i32", "i64"):
                return f"vyre.atomic_{self.pick('add', 'xor', 'max')}(own_{kind}, i, {a})"
        return f"{kind}({self.value(self.pick(*TYPES), depth - 1)})"

    def index(self) -> str:
        known = [name for name, of in self.names.items() if of == "u32"]
        return self.random.choice(["0", "2", "i", "(i + 1)", *known, *(f"({name} % 5)" for name in known)])

    def condition(self, depth: int = 2) -> str:
        kind = self.pick(*TYPES)
        if depth > 0 and self.random.random() < 0.4:
            a, b = self.condition(depth - 1), self.condition(depth - 1)
            return self.pick(f"({a} and {b})", f"({a} or {b})", f"(not {a})")
        a, b, c = (self.value(kind, max(0, depth - 1)) for _ in range(3))
        compare = ("<", "<=", ">", ">=", "==", "!=")
        chain = f" {self.pick('<', '<=')} {c}" if self.random.random() < 0.25 else ""
        if chain and self.random.random() < 0.4:
            chain += f" {self.pick('<', '!=')} {self.value(kind, 1)}"
        return f"({a} {self.pick(*compare)} {b}{chain})"

    def body(self, inner: int) -> None:
        """A list of statements, with its own names; those that it adds are gone behind it."""
        self.depth += 1
        before, start = dict(self.names), len(self.lines)
        for _ in range(self.random.randint(1, 3)):
            self.statement(inner)
        if len(self.lines) == start:
            self.write("pass")
        self.names = before
        self.depth -= 1

    def statement(self, inner: int) -> None:
        self.budget -= 1
        kind = self.pick(*TYPES)
        assignable = [name for name in self.names if name not in self.fixed]
        match self.random.randrange(14 if inner > 0 and self.budget > 0 else 7):
            case 0 | 1:
                name = f"{self.pick('a', 'b', 'c')}_{kind}"
                self.write(f"{name} = {self.value(kind)}")
                self.names[name] = kind
            case 2 if assignable:
                name = self.random.choice(assignable)
                self.write(f"{name} {self.pick('+=', '-=', '*=')} {self.value(self.names[name])}")
            case 3:
                self.write(f"own_{kind}[i] = {self.value(kind) if self.random.random() < 0.7 else self.bare(kind)}")
            case 4:
                self.write(f"own_{kind}[i] {self.pick('+=', '*=')} {self.value(kind)}")
            case 5:
                self.write(f"grid_{kind}[i, {self.index()}] = {self.value(kind)}")
            case 6 if len(assignable) > 1:
                alike = [name for name in assignable if self.names[name] == self.names[assignable[0]]]
                if len(alike) > 1:
                    kind = self.names[alike[0]]
                    second = self.value(kind) if self.random.random() < 0.6 else self.bare(kind)
                    self.write(f"{alike[0]}, {alike[1]} = {alike[1]}, {second}")
            case 7 | 8:
                self.write(f"if {self.condition()}:")
                self.body(inner - 1)
                if self.random.random() < 0.4:
                    self.write(f"elif {self.condition()}:")
                    self.body(inner - 1)
                if self.random.random() < 0.5:
                    self.write("else:")
                    self.body(inner - 1)
            case 9 | 10:
                self.loop(inner)
            case 11:
                self.count_down(inner)
            case 12 if self.loops:
                self.write(f"if {self.condition(1)}:")
                self.write(f"    {self.pick('break', 'continue')}")
            case 13 if self.random.random() < 0.5:
                self.write(f"if {self.condition(1)}:")
                self.write("    return" if self.result is None else f"    return {self.value(self.result)}")
            case _:
                self.write("pass")

    def loop(self, inner: int) -> None:
        kind, name = self.pick("u32", "u32", *INTEGERS), self.pick("k", "m")
        if name in self.names:
            return
        bounds = self.pick("4", "1, 5", "0, 9, 3", "2, 2") if kind == "u32" else f"{kind}(7), {kind}(1), -2"
        self.write(f"for {name} in range({bounds}):")
        self.loops += 1
        outer = dict(self.names)
        self.names[name] = kind
        if self.random.random() < 0.7:
            self.fixed.add(name)
        self.body(inner - 1)
        self.fixed.discard(name)
        self.names = outer
        self.loops -= 1

    def count_down(self, inner: int) -> None:
        if "left" in self.names:
            return
        self.write("left = u32(3)")
        self.names["left"] = "u32"
        self.fixed.add("left")
        self.write(f"while left > 0{f' and {self.condition(1)}' if self.random.random() < 0.4 else ''}:")
        self.loops += 1
        self.depth += 1
        self.write("left -= 1")
        self.depth -= 1
        self.body(inner - 1)
        self.loops -= 1
        self.fixed.discard("left")
        del self.names["left"]

    def module(self) -> str:
        for number in range(self.random.randint(0, 2)):
            takes, gives = self.pick(*TYPES), self.pick("u32", *TYPES)
            self.lines += ["@vyre.function", f"def f{number}(given, i, {', '.join(ARRAYS)}):"]
            self.names, self.result, self.budget = {"given": takes, "i": "u32"}, gives, 6
            self.fixed = {"i"} if self.random.random() < 0.5 else {"i", "given"}
            self.write(f"own_{gives}[i] += 1")
            for _ in range(self.random.randint(0, 3)):
                self.statement(2)
            self.write(f"return {self.value(gives)}")
            self.lines.append("")
            self.functions.append((f"f{number}", takes, gives))
        self.lines += [
            "@vyre.kernel(workgroup=8)",
            f"def k({', '.join(f'{name}: vyre.{of}' for name, of in ARRAYS.items())}):",
        ]
        self.write("i = vyre.gid()")
        self.names, self.fixed, self.result, self.budget = {"i": "u32"}, {"i"}, None, 14
        for _ in range(self.random.randint(3, 6)):
            self.statement(3)
        return HEADER + "\n".join(self.lines) + "\n"


def kernel_text(seed: int) -> str:
    return Writer(seed).module()
