"""Packages as syntax trees: find the files of a package or a path, and parse them. No code of theirs runs."""

from __future__ import annotations

import ast
import fnmatch
import io
import os
import tokenize
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.machinery import PathFinder
from pathlib import Path


class NotFound(Exception):
    """There is nothing to analyze; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A Python file and the dotted name under which the package's other files import it."""

    path: Path
    shown: str
    module: str
    is_package: bool


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that is left out, and why."""

    shown: str
    reason: str


@dataclass(slots=True, eq=False)
class ParsedFile:
    """A file with its lines and its syntax tree."""

    file: SourceFile
    lines: list[str]
    tree: ast.Module
    has_walrus: bool


@dataclass(slots=True)
class Package:
    """The files of a package, parsed."""

    name: str
    root: Path
    files: list[ParsedFile] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    @property
    def line_count(self) -> int:
        return sum(len(one.lines) for one in self.files)


def find_files(target: str, exclude: Sequence[str] = ()) -> tuple[str, Path, list[SourceFile]]:
    """The name, the directory and the Python files of an installed package, a directory or a file.

    ``exclude`` are shell patterns of paths relative to the directory: ``tests/*`` or ``*/migrations/*``.
    """
    path = Path(target)
    if target.endswith(".py") or os.sep in target or path.is_dir():
        name, roots = path.resolve().stem if path.suffix == ".py" else path.resolve().name, [path.resolve()]
        if not path.exists():
            raise NotFound(
                f"{target} does not exist. Fix: pass a file, a directory or the name of an installed package."
            )
        prefix = _dotted_name(roots[0])
    else:
        name, roots, prefix = target, _locations(target), target
    files = [one for root in roots for one in _files_below(root, prefix, exclude)]
    if not files:
        raise NotFound(f"{target} has no Python files. Fix: pass a package that is written in Python.")
    return name, roots[0], files


def parse_files(name: str, root: Path, files: Sequence[SourceFile], advance: Callable[[], None]) -> Package:
    """Parse every file; those that cannot be parsed are skipped with the reason."""
    package = Package(name, root)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # escapes and comparisons in code that is not the user's to mend here
        for one in files:
            parsed = _parse(one)
            if isinstance(parsed, ParsedFile):
                package.files.append(parsed)
            else:
                package.skipped.append(parsed)
            advance()
    return package


def _parse(file: SourceFile) -> ParsedFile | Skipped:
    try:
        data = file.path.read_bytes()
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = io.TextIOWrapper(io.BytesIO(data), encoding).read()
        tree = ast.parse(text, file.shown)
    except SyntaxError as error:
        return Skipped(file.shown, f"line {error.lineno}: {error.msg}" if error.lineno else str(error.msg))
    except (UnicodeDecodeError, ValueError) as error:
        return Skipped(file.shown, f"not text: {error}")
    except OSError as error:
        return Skipped(file.shown, f"cannot be read: {error.strerror}")
    except (RecursionError, MemoryError):
        return Skipped(file.shown, "nested too deeply for the parser")
    return ParsedFile(file, text.removesuffix("\n").split("\n"), tree, ":=" in text)


def _dotted_name(path: Path) -> str:
    """The name that a file or directory is imported by; empty for a directory that is no package.

    Such a directory holds scripts and packages, which import each other by their own names.
    """
    if path.is_dir() and not (path / "__init__.py").exists():
        return ""
    parts = [path.stem if path.suffix == ".py" else path.name]
    for parent in path.parents:
        if not (parent / "__init__.py").exists():
            break
        parts.insert(0, parent.name)
    return ".".join(parts)


def _locations(name: str) -> list[Path]:
    """Where an installed package lies. Parent packages are searched, never imported."""
    search: list[str] | None = None
    where: list[Path] = []
    for part in name.split("."):
        spec = PathFinder.find_spec(part, search) if part.isidentifier() else None
        if spec is None:
            raise NotFound(f"no package '{name}' is installed. Fix: install it, or pass the path of its directory.")
        search = list(spec.submodule_search_locations or ())
        if search:
            where = [Path(one) for one in search]
        elif spec.origin is not None and spec.origin.endswith(".py"):
            where = [Path(spec.origin)]
        else:
            raise NotFound(f"'{name}' is not written in Python ({spec.origin}). Fix: pass a package of Python files.")
    return where


def _files_below(root: Path, prefix: str, exclude: Sequence[str]) -> Iterator[SourceFile]:
    if not root.is_dir():
        yield SourceFile(root, root.name, prefix, False)
        return
    for directory, directories, names in os.walk(root):
        directories[:] = sorted(one for one in directories if not one.startswith(".") and one != "__pycache__")
        for one in sorted(names):
            path = Path(directory, one)
            relative = path.relative_to(root).as_posix()
            if not one.endswith(".py") or any(fnmatch.fnmatch(relative, pattern) for pattern in exclude):
                continue
            parts = [*([prefix] if prefix else []), *relative[:-3].split("/")]
            is_package = parts[-1] == "__init__" and len(parts) > 1
            yield SourceFile(path, f"{root.name}/{relative}", ".".join(parts[:-1] if is_package else parts), is_package)
