"""What names mean: the functions, classes, imports and variables of every scope of a package.

``index_package`` collects definitions statement by statement. ``lookup`` finds what a name means in a scope,
``member`` what an attribute of a module or class means, ``find_method`` the method that a class has or inherits.

A name that is both imported or defined and assigned (``try: import x`` / ``except ImportError: x = None``) means the
import.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from taint_analysis import tables
from taint_analysis.flow import Path
from taint_analysis.package import Package, ParsedFile

FunctionSyntax: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
# What a name means: a definition, an external dotted name, a variable, or nothing that is known.
Meaning: TypeAlias = "Module | Class | Function | str | Path | None"
ClassOrName: TypeAlias = "Class | str | None"

_MAX_OVERRIDES: Final = 12
_MAX_DEPTH: Final = 12
_FIELD_CLASSES: Final = frozenset({"typing.NamedTuple", "msgspec.Struct", "pydantic.BaseModel"})
_FIELD_DECORATORS: Final = frozenset(
    {"dataclasses.dataclass", "attr.s", "attr.attrs", "attr.dataclass", "attr.define", "attrs.define", "attrs.frozen"}
)


@dataclass(slots=True, eq=False)
class Scope:
    """The names that a module, function or class binds."""

    kind: str
    module: Module
    owner: Module | Function | Class
    parent: Scope | None
    functions: dict[str, list[Function]] = field(default_factory=dict)
    classes: dict[str, Class] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)
    # Each variable with the expressions that it is assigned, None where it is bound in another way.
    variables: dict[str, list[ast.expr | None]] = field(default_factory=dict)
    annotations: dict[str, ast.expr] = field(default_factory=dict)
    declared_global: set[str] = field(default_factory=set)
    declared_nonlocal: set[str] = field(default_factory=set)
    star_imports: list[str] = field(default_factory=list)
    meanings: dict[str, tuple[Meaning, Scope | None]] = field(default_factory=dict)
    variable_classes: dict[str, ClassOrName] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Module:
    """A file of the package."""

    name: str
    parsed: ParsedFile
    scope: Scope = field(init=False)

    def __post_init__(self) -> None:
        self.scope = Scope("module", self, self, None)


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of a function, by the way that arguments reach them."""

    positional: tuple[str, ...]
    keyword_only: tuple[str, ...]
    rest: str | None
    keywords: str | None

    @property
    def names(self) -> list[str]:
        extra = [one for one in (self.rest, self.keywords) if one is not None]
        return [*self.positional, *self.keyword_only, *extra]


@dataclass(slots=True, eq=False)
class Function:
    """A function or method. ``role`` is function, method, static, class or property."""

    name: str
    syntax: FunctionSyntax
    module: Module
    owner: Class | None
    role: str
    parameters: Parameters
    scope: Scope = field(init=False)
    is_overload: bool = False

    @property
    def self_name(self) -> str | None:
        """The parameter that is the object of a method, or the class of a class method."""
        if self.owner is None or self.role == "static" or not self.parameters.positional:
            return None
        return self.parameters.positional[0]


@dataclass(slots=True, eq=False)
class Class:
    """A class of the package."""

    name: str
    syntax: ast.ClassDef
    module: Module
    scope: Scope = field(init=False)
    bases: list[Class] = field(default_factory=list)
    external_bases: list[str] = field(default_factory=list)
    subclasses: list[Class] = field(default_factory=list)
    ancestors: list[Class] = field(default_factory=list)
    attributes: dict[str, list[tuple[Scope, ast.expr | None]]] = field(default_factory=dict)
    methods: dict[str, Function | str | None] = field(default_factory=dict)
    overrides: dict[str, tuple[Function, ...]] = field(default_factory=dict)
    attribute_classes: dict[str, ClassOrName] = field(default_factory=dict)
    fields: tuple[str, ...] | None = None

    @property
    def root(self) -> str:
        """The root of the paths of its class attributes."""
        return f"@{self.module.name}:{self.name}"


@dataclass(slots=True)
class Index:
    """The definitions of a package."""

    modules: dict[str, Module] = field(default_factory=dict)
    functions: list[Function] = field(default_factory=list)
    classes: list[Class] = field(default_factory=list)
    resolved: dict[str, Meaning] = field(default_factory=dict)


def index_package(package: Package) -> Index:
    """Collect every definition of a package."""
    index = Index()
    for parsed in package.files:
        module = Module(parsed.file.module, parsed)
        index.modules[module.name] = module
        _Collector(index, module, module.scope, None, "").collect(parsed.tree.body)
    for one in index.classes:
        _find_bases(index, one)
    for one in index.classes:
        one.ancestors = _ancestors(one)
    for one in index.classes:
        one.fields = _declared_fields(index, one)
    return index


class _Collector:
    """Collects what the statements of one scope bind."""

    def __init__(self, index: Index, module: Module, scope: Scope, function: Function | None, prefix: str) -> None:
        self.index = index
        self.module = module
        self.scope = scope
        self.function = function
        self.prefix = prefix

    def collect(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            match statement:
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    self.define_function(statement)
                case ast.ClassDef():
                    self.define_class(statement)
                case ast.Import():
                    for alias in statement.names:
                        first = alias.name.partition(".")[0]
                        self.scope.imports.setdefault(alias.asname or first, alias.name if alias.asname else first)
                case ast.ImportFrom():
                    self.import_from(statement)
                case ast.Assign():
                    for target in statement.targets:
                        self.bind(target, statement.value)
                    self.bind_walruses(statement.value)
                case ast.AnnAssign():
                    if isinstance(statement.target, ast.Name):
                        self.scope.annotations.setdefault(statement.target.id, statement.annotation)
                    self.bind(statement.target, statement.value)
                case ast.AugAssign():
                    self.bind(statement.target, None)
                case ast.For() | ast.AsyncFor():
                    self.bind(statement.target, None)
                    self.bind_walruses(statement.iter)
                    self.collect(statement.body)
                    self.collect(statement.orelse)
                case ast.While() | ast.If():
                    self.bind_walruses(statement.test)
                    self.collect(statement.body)
                    self.collect(statement.orelse)
                case ast.With() | ast.AsyncWith():
                    for item in statement.items:
                        if item.optional_vars is not None:
                            self.bind(item.optional_vars, item.context_expr)
                    self.collect(statement.body)
                case ast.Try() | ast.TryStar():
                    self.collect(statement.body)
                    for handler in statement.handlers:
                        if handler.name is not None:
                            self.variable(handler.name, None)
                        self.collect(handler.body)
                    self.collect(statement.orelse)
                    self.collect(statement.finalbody)
                case ast.Match():
                    for case in statement.cases:
                        self.bind_pattern(case.pattern)
                        self.collect(case.body)
                case ast.Global():
                    self.scope.declared_global.update(statement.names)
                    for name in statement.names:
                        self.module.scope.variables.setdefault(name, []).append(None)
                case ast.Nonlocal():
                    self.scope.declared_nonlocal.update(statement.names)
                case ast.Expr() | ast.Return():
                    if statement.value is not None:
                        self.bind_walruses(statement.value)

    def define_function(self, syntax: FunctionSyntax) -> None:
        owner = self.scope.owner if isinstance(self.scope.owner, Class) else None
        decorators = [tables.last_name(one) for one in syntax.decorator_list]
        role = "function" if owner is None else "method"
        if owner is not None:
            if "staticmethod" in decorators:
                role = "static"
            elif "classmethod" in decorators or syntax.name in ("__new__", "__init_subclass__", "__class_getitem__"):
                role = "class"
            elif "property" in decorators or "cached_property" in decorators:
                role = "property"
        given = syntax.args
        parameters = Parameters(
            tuple(one.arg for one in (*given.posonlyargs, *given.args)),
            tuple(one.arg for one in given.kwonlyargs),
            given.vararg.arg if given.vararg else None,
            given.kwarg.arg if given.kwarg else None,
        )
        function = Function(f"{self.prefix}{syntax.name}", syntax, self.module, owner, role, parameters)
        function.is_overload = "overload" in decorators or "setter" in decorators or "deleter" in decorators
        function.scope = Scope("function", self.module, function, self.scope)
        for one in (*given.posonlyargs, *given.args, *given.kwonlyargs):
            function.scope.variables[one.arg] = [None]
            if one.annotation is not None:
                function.scope.annotations[one.arg] = one.annotation
        for name in (parameters.rest, parameters.keywords):
            if name is not None:
                function.scope.variables[name] = [None]
        self.scope.functions.setdefault(syntax.name, []).append(function)
        self.index.functions.append(function)
        _Collector(self.index, self.module, function.scope, function, f"{function.name}.").collect(syntax.body)

    def define_class(self, syntax: ast.ClassDef) -> None:
        made = Class(f"{self.prefix}{syntax.name}", syntax, self.module)
        made.scope = Scope("class", self.module, made, self.scope)
        self.scope.classes[syntax.name] = made
        self.index.classes.append(made)
        _Collector(self.index, self.module, made.scope, self.function, f"{made.name}.").collect(syntax.body)

    def import_from(self, statement: ast.ImportFrom) -> None:
        source = statement.module or ""
        if statement.level:
            parts = self.module.name.split(".")
            kept = len(parts) - statement.level + self.module.parsed.file.is_package
            source = ".".join([*parts[: max(kept, 0)], *([source] if source else [])])
        for alias in statement.names:
            if alias.name == "*":
                self.scope.star_imports.append(source)
            else:
                self.scope.imports.setdefault(
                    alias.asname or alias.name, f"{source}.{alias.name}" if source else alias.name
                )

    def bind(self, target: ast.expr, value: ast.expr | None) -> None:
        match target:
            case ast.Name():
                self.variable(target.id, value)
            case ast.Tuple() | ast.List():
                for one in target.elts:
                    self.bind(one, None)
            case ast.Starred():
                self.bind(target.value, None)
            case ast.Attribute(value=ast.Name(id=name), attr=attribute):
                function = self.function
                if function is not None and function.owner is not None and name == function.self_name:
                    function.owner.attributes.setdefault(attribute, []).append((self.scope, value))

    def bind_walruses(self, expression: ast.expr) -> None:
        # Only files that have one at all are searched for assignments within expressions.
        if isinstance(expression, (ast.Constant, ast.Name)) or not self.module.parsed.has_walrus:
            return
        for one in ast.walk(expression):
            if isinstance(one, ast.NamedExpr):
                self.variable(one.target.id, one.value)

    def bind_pattern(self, pattern: ast.pattern) -> None:
        for one in ast.walk(pattern):
            if isinstance(one, (ast.MatchAs, ast.MatchStar)) and one.name is not None:
                self.variable(one.name, None)
            elif isinstance(one, ast.MatchMapping) and one.rest is not None:
                self.variable(one.rest, None)

    def variable(self, name: str, value: ast.expr | None) -> None:
        if name in self.scope.declared_global:
            self.module.scope.variables.setdefault(name, []).append(value)
        elif name not in self.scope.declared_nonlocal:
            self.scope.variables.setdefault(name, []).append(value)


def lookup(index: Index, scope: Scope, name: str) -> tuple[Meaning, Scope | None]:
    """What a name means in a scope, and the scope that binds it."""
    found = scope.meanings.get(name)
    if found is None:
        found = scope.meanings[name] = _lookup(index, scope, name)
    return found


def _lookup(index: Index, scope: Scope, name: str) -> tuple[Meaning, Scope | None]:
    one: Scope | None = scope.module.scope if name in scope.declared_global else scope
    while one is not None:
        if one.kind != "class" or one is scope:
            meaning = _bound(index, one, name)
            if meaning is not None:
                return meaning, one
        one = one.parent
    module = scope.module.scope
    for star in module.star_imports:
        meaning = resolve(index, f"{star}.{name}")
        if not isinstance(meaning, str) or tables.is_in_tables(tables.canonical(meaning)):
            return meaning, module
    return tables.canonical(name), None


def _bound(index: Index, scope: Scope, name: str) -> Meaning:
    if name in scope.functions:
        return scope.functions[name][-1]
    if name in scope.classes:
        return scope.classes[name]
    if name in scope.imports:
        return resolve(index, scope.imports[name])
    if name in scope.variables:
        if scope.kind == "function":
            return (name,)
        owner = scope.owner
        return (owner.root, name) if isinstance(owner, Class) else (f"@{scope.module.name}:{name}",)
    return None


def resolve(index: Index, dotted: str, depth: int = 0) -> Meaning:
    """What an absolute dotted name means; the name itself if it is external."""
    if dotted in index.resolved:
        return index.resolved[dotted]
    meaning: Meaning = tables.canonical(dotted)
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        module = index.modules.get(".".join(parts[:length]))
        if module is None:
            continue
        found: Meaning = module
        for part in parts[length:]:
            found = member(index, found, part, depth + 1)
        if found is not None or length == len(parts):
            meaning = found
        break
    index.resolved[dotted] = meaning
    return meaning


def member(index: Index, owner: Meaning, name: str, depth: int = 0) -> Meaning:
    """What ``owner.name`` means for a module, a class or an external name; None for anything else."""
    if isinstance(owner, str):
        return tables.canonical(f"{owner}.{name}")
    if depth > _MAX_DEPTH:
        return None
    if isinstance(owner, Module):
        scope = owner.scope
        if name in scope.imports and name not in scope.functions and name not in scope.classes:
            target = scope.imports[name]
            return resolve(index, target, depth) if target != f"{owner.name}.{name}" else index.modules.get(target)
        meaning = _bound(index, scope, name)
        if meaning is None:
            meaning = index.modules.get(f"{owner.name}.{name}")
        if meaning is None:
            for star in scope.star_imports:
                found = resolve(index, f"{star}.{name}", depth) if depth < _MAX_DEPTH else None
                if found is not None and not isinstance(found, str):
                    return found
        return meaning
    if isinstance(owner, Class):
        method = find_method(owner, name)
        if method is not None:
            return method
        for one in owner.ancestors:
            if name in one.scope.classes:
                return one.scope.classes[name]
            if name in one.scope.variables:
                return (one.root, name)
    return None


def meaning_of(index: Index, scope: Scope, expression: ast.expr) -> Meaning:
    """What a name or a dotted expression means; None for expressions that have to be evaluated."""
    if isinstance(expression, ast.Name):
        return lookup(index, scope, expression.id)[0]
    if isinstance(expression, ast.Attribute):
        owner = meaning_of(index, scope, expression.value)
        return member(index, owner, expression.attr) if isinstance(owner, (Module, Class, str)) else None
    return None


def find_method(owner: Class, name: str, after: Class | None = None) -> Function | str | None:
    """The method that a class has or inherits; an external dotted name if only an external base can have it.

    ``after`` is the class whose ``super()`` is meant.
    """
    if after is None and name in owner.methods:
        return owner.methods[name]
    found: Function | str | None = None
    external: str | None = None
    ancestors = owner.ancestors or [owner]
    for one in ancestors[ancestors.index(after) + 1 :] if after in ancestors else ancestors:
        if name in one.scope.functions:
            found = next(
                (f for f in reversed(one.scope.functions[name]) if not f.is_overload), one.scope.functions[name][0]
            )
            break
        if name in one.scope.variables or name in one.scope.classes:
            break
        if external is None and one.external_bases and after is not one:
            external = tables.canonical(f"{one.external_bases[0]}.{name}")
    else:
        if external is None and after is not None and after.external_bases:
            external = tables.canonical(f"{after.external_bases[0]}.{name}")
        found = external
    if after is None:
        owner.methods[name] = found
    return found


def find_overrides(owner: Class, name: str) -> tuple[Function, ...]:
    """The methods of this name in subclasses; none if there are too many to follow."""
    if name not in owner.overrides:
        found: list[Function] = []
        for one in descendants(owner):
            functions = one.scope.functions.get(name, ())
            found += [function for function in functions if not function.is_overload]
            if len(found) > _MAX_OVERRIDES:
                found = []
                break
        owner.overrides[name] = tuple(found)
    return owner.overrides[name]


def descendants(owner: Class) -> Iterator[Class]:
    """All subclasses, each once."""
    seen = {id(owner)}
    waiting = list(owner.subclasses)
    while waiting:
        one = waiting.pop()
        if id(one) not in seen:
            seen.add(id(one))
            yield one
            waiting += one.subclasses


def _find_bases(index: Index, owner: Class) -> None:
    scope = owner.scope.parent
    assert scope is not None  # classes are defined somewhere
    for base in owner.syntax.bases:
        inner = base.value if isinstance(base, ast.Subscript) else base
        meaning = meaning_of(index, scope, inner)
        if isinstance(meaning, Class) and meaning is not owner:
            owner.bases.append(meaning)
            meaning.subclasses.append(owner)
        elif isinstance(meaning, str):
            owner.external_bases.append(meaning)


def _ancestors(owner: Class) -> list[Class]:
    """The class and its bases, in the order in which methods are looked up (depth first, each class once)."""
    found: dict[int, Class] = {}

    def visit(one: Class) -> None:
        if id(one) not in found:
            found[id(one)] = one
            for base in one.bases:
                visit(base)

    visit(owner)
    return list(found.values())


def _declared_fields(index: Index, owner: Class) -> tuple[str, ...] | None:
    """The fields that a dataclass or the like takes as arguments, in order; None for other classes."""
    scope = owner.scope.parent
    assert scope is not None
    decorators = (one.func if isinstance(one, ast.Call) else one for one in owner.syntax.decorator_list)
    is_record = any(meaning_of(index, scope, one) in _FIELD_DECORATORS for one in decorators)
    is_record = is_record or any(base in _FIELD_CLASSES for one in owner.ancestors for base in one.external_bases)
    if not is_record:
        return None
    names = [
        statement.target.id
        for one in reversed(owner.ancestors)
        for statement in one.syntax.body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    ]
    return tuple(dict.fromkeys(names))
