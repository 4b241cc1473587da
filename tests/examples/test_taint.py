"""The taint analysis of examples/taint.py: what it finds, what it leaves alone, and what the command says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
SAMPLES = Path(__file__).with_name("taint_samples")
sys.path.insert(0, str(EXAMPLES))

import taint  # noqa: E402
import taint_analysis  # noqa: E402
from taint_analysis.findings import Finding  # noqa: E402

IMPORTS = """\
import os, sys, re, shlex, subprocess, pickle, yaml, json, ast, copy, argparse, requests, contextlib, dataclasses
from dataclasses import dataclass
"""

# Each is a module; lines with `#!` are those of the sinks that must be found, and no others.
EXPRESSIONS = {
    "operators": """
        def f():
            x = input()
            eval("a" + x)  #!
            eval("%s" % x)  #!
            eval("%s %d" % (1, x))
            eval("%d" % x)
            eval(f"{x}")  #!
            eval(f"{x:d} {x:>3.1f}")
            eval(f"{x:>{x}}")  #!
            eval("{}".format(x))  #!
            eval(x * 2)  #!
            eval("y" if x else "z")
            eval(x if x else "z")  #!
            eval(str(x == "a"))
            eval(x and "a")
            eval(x or "a")  #!
            eval(str(x ** 2) + str(-x) + str(x // 2) + str(not x))
            eval([x][0])  #!
            eval({"a": x}["a"])  #!
            eval({"a": x}["b"])
            eval(TABLE[x])
            eval((lambda: x)())  #!
            eval(x[1:])  #!
            eval(await_(x))  #!
            eval(x.upper().strip())  #!
            eval(",".join(["a", x]))  #!
        TABLE = {"a": "1", "b": "2"}
        """,
    "comprehensions": """
        def f():
            xs = input().split()
            eval([x for x in xs][0])  #!
            eval(str({k: v for k, v in enumerate(xs)}))  #!
            eval(str([i for i, x in enumerate(xs)]))
            eval(str([a for a, b in zip(["1"], xs)]))
            eval(str([b for a, b in zip(["1"], xs)]))  #!
            eval(str([x for x in xs if x.isdigit()]))
            eval(str([x for x in xs if x]))  #!
            eval(str([len(x) for x in xs]))
            [eval(x) for x in xs]  #!
            eval(str(sorted(x for x in ["1"])))
        """,
    "assignments": """
        def f():
            a, b = input(), "1"
            eval(a)  #!
            eval(b)
            a, b = b, a
            eval(a)
            eval(b)  #!
            first, *rest = input().split()
            eval(rest[0])  #!
            c = d = input()
            eval(d)  #!
            d += "x"
            eval(d)  #!
            d = "x"
            eval(d)
            eval(c)  #!
            if (e := input()) and eval(e):  #!
                eval(e)  #!
            g: str = input()
            eval(g)  #!
            del g
            h = [input()]
            h[0], i = "1", h
            eval(i[0])  #!
        """,
    "containers": """
        def f():
            xs = []
            xs.append(input())
            eval(xs[0])  #!
            d = {}
            d["a"] = input()
            eval(d["a"])  #!
            eval(d["b"])
            eval(d.get("b", ""))
            eval(str(d))  #!
            eval(d.get(input()))  #!
            for key, value in d.items():
                eval(value)  #!
            d["a"] = "1"
            eval(d["a"])
            e = {"x": input(), "y": "1", **d}
            eval(e["x"])  #!
            eval(e["y"])  #!
            g = {"x": input(), "y": "1"}
            eval(g["y"])
            h = dict(x=input(), y="1")
            eval(h["x"] + h["y"])  #!
            eval(h.copy()["y"])
            eval(copy.copy(h)["x"])  #!
            k = {}
            k.update(x=input())
            eval(k["y"])
            eval(k["x"])  #!
            k.update(input())
            eval(k["y"])  #!
            t = ("1", input())
            eval(t[0])
            one, two = t
            eval(one)
            eval(two)  #!
        """,
    "sanitizers": """
        def f(cursor, connection):
            x = input()
            eval(str(int(x)))
            eval(str(ast.literal_eval(x)))
            os.system("ls " + shlex.quote(x))
            eval(str(len(x)))
            eval(x.isdigit())
            eval(json.dumps({"a": 1}))
            eval(json.loads(x))  #!
            eval(os.path.join("a", x))  #!
            eval(x.__class__.__name__)
            cursor.execute("select 1 where a = ?", (x,))
            cursor.execute("select " + x)  #!
            connection.cursor().execute(f"select {x}")  #!
            things.execute(x)
        """,
    "sinks": """
        from subprocess import Popen as run, check_call
        from os import *
        from pickle import *
        import subprocess as sp
        def f(flag):
            x = input()
            run(x, shell=True)  #!
            run(x)
            run(x, shell=False)
            run(["ls", x])
            run(["sh", "-c", x])  #!
            run(args=x, shell=1)  #!
            run(x, shell=flag)  #!
            sp.getoutput(x)  #!
            system(x)  #!
            loads(x)  #!
            yaml.load(x)  #!
            yaml.load(x, Loader=yaml.Loader)  #!
            yaml.load(x, yaml.SafeLoader)
            yaml.safe_load(x)
            exec(x)  #!
            exec("1", {"x": x})
            exec(*x)  #!
            open(x)
        """,
    "sources": """
        from sys import argv
        import flask, click, socket
        def f(request):
            eval(argv[1])  #!
            eval(argv[0])
            eval(os.environ.get("A", "1"))  #!
            eval(os.environ["A"])  #!
            eval(sys.stdin.readline())  #!
            eval(requests.get("http://a").text)  #!
            eval(requests.Session().get("http://a").json())  #!
            eval(request.GET["a"])  #!
            eval(flask.request.args.get("a"))  #!
            eval(other.GET["a"])
            s = socket.socket()
            eval(s.recv(10))  #!
            parser = argparse.ArgumentParser()
            parser.add_argument("x")
            eval(parser.parse_args().x)  #!
            eval(str("A" in os.environ))
            for line in sys.stdin:
                eval(line)  #!
        @click.command()
        @click.argument("name")
        def command(name):
            eval(name)  #!
        def default(name=os.environ["A"]):
            eval(name)  #!
        """,
    "names": """
        import os as o
        from os import system as s, popen
        def f():
            o.system(input())  #!
            s(input())  #!
            popen("ls")
        def g():
            def eval(x):
                return x
            eval(input())
        def h(eval):
            eval(input())
        def i():
            import builtins
            builtins.eval(input())  #!
        class Shell:
            def system(self, x):
                return x
        def j():
            os = Shell()
            os.system(input())
        """,
}

STATEMENTS = {
    "branches": """
        def f(flag):
            x = "1"
            if flag:
                x = input()
            elif flag is None:
                x = "2"
            eval(x)  #!
            if True:
                x = "1"
            eval(x)
            if False:
                eval(input())
            while not flag:
                eval(x)  #!
                x = input()
            else:
                y = "1"
                eval(y)
            eval(x)  #!
        """,
    "loops": """
        def f(xs):
            last = "1"
            for x in xs:
                eval(last)
                if x:
                    continue
                last = input()
                break
            else:
                eval(last)
                last = "2"
            eval(last)  #!
        def g():
            while True:
                pass
            eval(input())
        def h():
            while True:
                x = input()
                if x == "q":
                    break
                x = "1"
            eval(x)
            for y in [input()]:
                pass
            eval(y)  #!
        """,
    "exceptions": """
        def f():
            x = input()
            try:
                x = str(int(x))
            except ValueError:
                eval(x)  #!
            else:
                eval(x)
            eval(x)  #!
        def g():
            x = "1"
            try:
                x = input()
                raise ValueError
            except (KeyError, ValueError):
                eval(x)  #!
        def h():
            try:
                return "1"
            finally:
                eval(input())  #!
            eval(input())
        def i(flag):
            x = "1"
            while flag:
                try:
                    if flag == 2:
                        x = input()
                        break
                    continue
                finally:
                    eval(x)  #!
                    x = "2"
            eval(x)
        def j():
            x = input()
            with contextlib.suppress(ValueError):
                x = int(x)
            eval(x)  #!
        def k():
            x = input()
            try:
                x = "1"
                g()
            except Exception as x:
                eval(x)
            raise SystemExit(x)
            eval(x)
        """,
    "with and match": """
        def f(kind):
            with open(input()) as file:
                eval(file.read())  #!
            match input().split():
                case [a, b]:
                    eval(b)  #!
                case {"k": v, **rest}:
                    eval(rest)  #!
                case str() as s if s.isdigit():
                    eval(s)
                case other:
                    eval(other)  #!
            match kind:
                case 1:
                    x = input()
                case _:
                    x = "1"
            eval(x)  #!
        """,
    "guards": """
        ALLOWED = {"a", "b"}
        def f():
            x = input()
            if x.isdigit():
                eval(x)
            else:
                eval(x)  #!
            if x in ALLOWED or x == "c":
                eval(x)
            if x in ALLOWED or x:
                eval(x)  #!
            if not re.fullmatch("[a-z]+", x):
                return
            eval(x)
        def g():
            x = input()
            if x != "a" and not isinstance(x, (int, float)):
                raise ValueError
            eval(x)
        def h():
            x = input()
            x.isdigit() and eval(x)
            y = eval(x) if x.isdigit() else eval(x)  #!
            assert x.isalnum()
            eval(x)
        def check(value):
            if value not in ("a", "b"):
                raise ValueError(value)
        def i():
            x = input()
            check(x)
            eval(x)
        def j():
            x = input()
            i()
            eval(x)  #!
        """,
}

CALLS = {
    "functions": """
        def same(x):
            return x
        def drop(x):
            return "1"
        def f():
            eval(same(input()))  #!
            eval(same("1"))
            eval(drop(input()))
            eval(same(same(x=input())))  #!
            eval(same(drop(same(input()))))
        def spread(first, *rest, key="1", **others):
            eval(first)  #!
            eval(rest[0])  #!
            eval(key)  #!
            eval(others["other"])  #!
        def g():
            spread(input())
            spread("1", input())
            spread("1", key=input())
            spread("1", other=input())
        def positional(a, b, c="1"):
            eval(a)
            eval(b)  #!
            eval(c)  #!
        def h():
            positional("1", *input().split())
        def pair():
            return "1", input()
        def i():
            a, b = pair()
            eval(a)
            eval(b)  #!
            eval(pair()[0])
            eval(pair())  #!
        def fill(xs):
            xs.append(input())
        def j():
            xs, ys = [], []
            fill(xs)
            eval(xs[0])  #!
            eval(ys[0])
        def make():
            yield "1"
            yield input()
        def k():
            for x in make():
                eval(x)  #!
        def even(n, x):
            return x if n == 0 else odd(n - 1, x)
        def odd(n, x):
            return even(n - 1, x)
        def m():
            eval(even(4, input()))  #!
            eval(odd(3, "1"))
        """,
    "closures": """
        def f():
            x = input()
            y = "1"
            def inner():
                eval(x)  #!
                eval(y)
            inner()
            y = x
            y = "2"
        def g():
            x = "1"
            def change():
                nonlocal x
                x = input()
            eval(x)
            change()
            eval(x)  #!
        def h(callback):
            command = input()
            def later():
                eval(command)  #!
            callback(later)
        def i():
            x = input()
            return lambda: eval(x)  #!
        """,
    "classes": """
        class Base:
            shared = os.environ["A"]
            fixed = "1"
            def __init__(self, a, b="1"):
                self.a = a
                self.b = b
            def name(self):
                return self.a
            @property
            def other(self):
                return self.b
            @classmethod
            def make(cls, x):
                return cls(x)
            @staticmethod
            def same(x):
                return x
        class Derived(Base):
            def __init__(self, a):
                super().__init__(a)
                self.c = "1"
            def run(self):
                eval(self.a)  #!
                eval(self.b)
                eval(self.c)
                eval(self.name())  #!
                eval(self.other)
                eval(self.shared)  #!
                eval(self.fixed)
                eval(self.same(self.a))  #!
                self.reset()
                eval(self.a)
            def reset(self):
                self.a = "1"
        class Unrelated:
            def __init__(self):
                self.a = "1"
            def run(self):
                eval(self.a)
        def f():
            d = Derived(input())
            eval(d.a)  #!
            eval(d.b)
            d.a = "1"
            eval(d.a)
            e = Derived("1")
            eval(e.a)
            eval(e.name())
            eval(Base.make(input()).a)  #!
            eval(Derived("1").a)
            h = Derived(input())
            eval(getattr(h, "a"))  #!
            eval(getattr(h, "b", "1"))
            eval(getattr(h, ""))
            eval(getattr(e, "b", input()))  #!
        """,
    "annotations": """
        class Tool:
            def run(self, command):
                os.system(command)  #!
        class Quiet(Tool):
            def run(self, command):
                os.system(command)  #!
        class Owner:
            def __init__(self):
                self.tool = Tool()
            def go(self):
                self.tool.run(input())
        def f(tool: "Tool | None"):
            tool.run(input())
        @dataclass
        class Record:
            name: str
            size: int = 3
        def g():
            r = Record(input(), "1")
            eval(r.name)  #!
            eval(r.size)
            s = Record(size=input(), name="1")
            eval(s.name)
            eval(s.size)  #!
        """,
    "deep attributes": """
        class Config:
            def __init__(self):
                self.first = "1"
                self.second = "1"
        class App:
            def __init__(self):
                self.config = Config()
                self.config.first = input()
            def run(self):
                eval(self.config.first)  #!
                eval(self.config.second)
        """,
    "globals": """
        SETTING = os.environ.get("A")
        LIMIT = 3
        STATE = {}
        def get():
            return SETTING
        def f():
            eval(get())  #!
            eval(str(LIMIT))
        def put():
            STATE["a"] = input()
        def g():
            eval(STATE["a"])  #!
            eval(STATE["b"])
        def change():
            global LATE
            LATE = input()
        def h():
            eval(LATE)  #!
        LATE = ""
        eval(SETTING)  #!
        """,
}


@pytest.fixture(scope="module")
def found_by_module(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[int]]:
    """The lines of the findings in each of the modules above, which are analyzed together."""
    directory = tmp_path_factory.mktemp("snippets")
    for name, source in {**EXPRESSIONS, **STATEMENTS, **CALLS}.items():
        text = IMPORTS + textwrap.dedent(source)
        (directory / f"{name.replace(' ', '_')}.py").write_text(text)
    result = taint_analysis.analyze(str(directory))
    assert not result.skipped
    assert [one.message for one in taint_analysis.analyze(str(directory), everything=True).findings] == [
        one.message for one in result.findings
    ]
    found: dict[str, set[int]] = {}
    for one in result.findings:
        found.setdefault(Path(one.place.file).stem, set()).add(one.place.line)
    return found


@pytest.mark.parametrize("name", [*EXPRESSIONS, *STATEMENTS, *CALLS])
def test_exactly_the_marked_lines_are_found(name: str, found_by_module: dict[str, set[int]]) -> None:
    lines = (IMPORTS + textwrap.dedent({**EXPRESSIONS, **STATEMENTS, **CALLS}[name])).splitlines()
    expected = {number for number, line in enumerate(lines, 1) if line.endswith("#!")}
    found = found_by_module.get(name.replace(" ", "_"), set())
    shown = [f"{number}: {lines[number - 1]}" for number in sorted(expected ^ found)]
    assert not shown, "\n".join(shown)


@pytest.fixture(scope="module")
def planted() -> taint_analysis.Result:
    return taint_analysis.analyze(str(SAMPLES / "planted"))


def marks(kind: str) -> dict[str, tuple[str, int]]:
    """The places in the planted package that are marked as a source or a sink, by the name of the flaw."""
    found = {}
    for path in (SAMPLES / "planted").glob("*.py"):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            mark = re.search(rf"# {kind}: (\S+)$", line)
            if mark is not None and mark[1] != "NAME":
                found[mark[1]] = (f"planted/{path.name}", number)
    return found


def ends(finding: Finding) -> tuple[tuple[str, int], tuple[str, int]]:
    first, last = finding.steps[0].place, finding.place
    return (first.file, first.line), (last.file, last.line)


def test_ten_planted_flaws_are_found_and_no_look_alike(planted: taint_analysis.Result) -> None:
    sources, sinks = marks("source"), marks("sink")
    assert len(sinks) == 10
    assert sources.keys() == sinks.keys()
    assert sorted(map(ends, planted.findings)) == sorted((sources[name], sinks[name]) for name in sinks)


def test_look_alikes_are_ten_functions_with_sources_and_sinks() -> None:
    text = (SAMPLES / "planted" / "harmless.py").read_text()
    bodies = re.split(r"^def ", text, flags=re.MULTILINE)[1:]
    assert len([one for one in bodies if re.search(r"eval|exec|os\.system|subprocess|\.execute", one)]) == 10


def test_steps_tell_the_way_of_the_data(planted: taint_analysis.Result) -> None:
    finding = next(one for one in planted.findings if ends(one)[1] == marks("sink")["two-calls"])
    told = [(one.kind, one.place.file, one.holder, one.function, one.callee) for one in finding.steps]
    assert told == [
        ("source", "planted/flaws.py", "name", "through_two_calls", ""),
        ("call", "planted/flaws.py", "directory", "through_two_calls", "run_later"),
        ("call", "planted/shell.py", "arguments", "run_later", "list_directory"),
        ("sink", "planted/shell.py", "", "list_directory", ""),
    ]
    assert finding.message == "os.system gets untrusted data from standard input (input)"
    assert finding.danger.cwe == 78


def test_every_step_is_on_a_line_of_its_file(planted: taint_analysis.Result) -> None:
    for finding in planted.findings:
        for one in finding.steps:
            line = planted.files[one.place.file].lines[one.place.line - 1]
            assert line[one.place.column : one.place.column + 1].strip(), (one, line)


def test_reference_backend_finds_the_same(planted: taint_analysis.Result) -> None:
    again = taint_analysis.analyze(str(SAMPLES / "planted"), backend="reference")
    assert again.findings == planted.findings


def run(*arguments: str, code: int) -> Result:
    result = CliRunner().invoke(taint.app, arguments)
    assert result.exit_code == code, (result.output, result.exception)
    assert "Traceback" not in result.output
    return result


def test_command_prints_paths_and_a_summary() -> None:
    out = run(str(SAMPLES / "planted"), code=1).stdout
    assert "\x1b" not in out
    assert "planted/shell.py:12:5: os.system gets untrusted data from standard input (input)\n" in out
    row = r"    planted/flaws\.py:\d+  later\(name\.strip\(\)\)  +passed to run_later as directory\n"
    assert re.search(row, out)
    assert "10 findings: 6 command injection, 2 code injection, 1 SQL injection, 1 unsafe deserialization\n" in out
    assert re.search(r"^problem: \d+ nodes, \d+ facts, \d+ exploded nodes, \d+ edges$", out, re.MULTILINE)


def test_command_runs_as_a_program() -> None:
    command = [sys.executable, str(EXAMPLES / "taint.py"), str(SAMPLES / "planted" / "settings.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("0 findings\nsettings: 1 files")


def test_command_prints_json() -> None:
    told = json.loads(run(str(SAMPLES / "planted"), "--json", code=1).stdout)
    assert len(told["findings"]) == 10
    first = told["findings"][0]
    assert (first["file"], first["sink"], first["cwe"]) == ("planted/flaws.py", "os.popen", 78)
    assert [one["kind"] for one in first["path"]] == ["source", "assign", "sink"]
    assert told["statistics"]["functions"] == 33
    assert set(told["seconds"]) == {"parse", "graphs", "problem", "solve", "report"}


def test_command_leaves_out_excluded_files() -> None:
    told = json.loads(run(str(SAMPLES / "planted"), "--json", "--exclude", "fl*.py", code=0).stdout)
    assert told["findings"] == []


def test_installed_packages_are_found_by_name_and_not_imported() -> None:
    before = "wsgiref" in sys.modules
    told = json.loads(run("wsgiref", "--json", code=0).stdout)
    assert told["statistics"]["functions"] > 30
    assert ("wsgiref" in sys.modules) == before


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["no_such_package"], "error: no package 'no_such_package' is installed. Fix: install it, or"),
        (["no.such.package"], "error: no package 'no.such.package' is installed."),
        (["{}/none.py"], "none.py does not exist. Fix: pass a file, a directory or the name"),
        (["{}"], "has no Python files. Fix: pass a package that is written in Python."),
        (["json", "--html", "{}/no/page.html"], "no is no directory. Fix: make it, or write the page elsewhere."),
        (["json", "--backend", "abacus"], "there is no backend 'abacus'"),
        (["json", "--frobnicate"], "No such option: --frobnicate"),
        ([], "Missing argument"),
    ],
)
def test_command_says_what_is_wrong(arguments: list[str], told: str, tmp_path: Path) -> None:
    result = run(*(one.format(tmp_path) for one in arguments), code=2)
    assert told in " ".join(result.output.split())


def test_unreadable_files_are_skipped_and_named(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text("eval(input())\n")
    (tmp_path / "wrong.py").write_text("def f(:\n    pass\n")
    (tmp_path / "bytes.py").write_bytes(b"x = '\xff\xfe'\n")
    (tmp_path / "zero.py").write_bytes(b"x = 1\0\n")
    (tmp_path / "coding.py").write_bytes(b"# coding: klingon\n")
    (tmp_path / "deep.py").write_text("(" * 1000 + ")" * 1000)
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere.py")
    (tmp_path / "long.py").write_text("x = " + " + ".join(["'a'"] * 3000) + " + input()\nexec(x)\n")
    out = run(str(tmp_path), code=1).stdout
    for name in ("wrong", "bytes", "zero", "coding", "deep", "gone"):
        assert f"skipped {tmp_path.name}/{name}.py: " in out
    assert f"skipped {tmp_path.name}/wrong.py: line 1: invalid syntax" in out
    assert "2 findings: 2 code injection" in out


def test_encodings_and_line_ends_do_not_move_lines(tmp_path: Path) -> None:
    source = "# coding: latin-1\r\ntext = 'äöü'; x = input()\r\n\r\n\x0ceval(x)\r\n"
    (tmp_path / "a.py").write_bytes(source.encode("latin-1"))
    result = taint_analysis.analyze(str(tmp_path))
    assert [ends(one) for one in result.findings] == [((f"{tmp_path.name}/a.py", 2), (f"{tmp_path.name}/a.py", 4))]


class Page(HTMLParser):
    """Checks that elements are closed in order, and collects what tests look at."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.findings = 0
        self.marked: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.findings += ("class", "finding") in attrs
        assert tag not in ("script", "img", "iframe")
        assert not any(name in ("src", "onclick") for name, _ in attrs)
        if tag not in ("meta", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "mark" in self.open:
            self.marked.append(data)


def read_page(path: Path) -> tuple[Page, str]:
    text = path.read_text(encoding="utf-8")
    page = Page()
    page.feed(text)
    assert page.open == []
    return page, text


def test_page_is_whole_and_self_contained(tmp_path: Path) -> None:
    out = run(str(SAMPLES / "planted"), "--html", str(tmp_path / "page.html"), code=1).stdout
    assert out.endswith(f"page: {tmp_path / 'page.html'}\n")
    page, text = read_page(tmp_path / "page.html")
    assert page.findings == 10
    assert "os.popen(self.command)" in "".join(page.marked)
    assert "prefers-color-scheme: dark" in text
    assert "http:" not in text.replace("https://example.org", "")


def test_page_escapes_the_source(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text('x = "<script>alert(1)</script>" + input()\nüber = f"<b>{x}"; eval(über)\n')
    (tmp_path / "b.py").write_text("if <script>:\n")
    run(str(tmp_path), "--html", str(tmp_path / "page.html"), code=1)
    page, text = read_page(tmp_path / "page.html")
    assert page.findings == 1
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "eval(über)" in "".join(page.marked)


def test_page_of_a_clean_package_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("print(input())\n")
    run(str(tmp_path), "--html", str(tmp_path / "page.html"), code=0)
    assert "No untrusted data reaches a dangerous call." in (tmp_path / "page.html").read_text()
