# ruff: noqa: A001, RET503, RET505, UP031
"""Ten functions that look like flaws and are none."""

import ast
import json
import os
import re
import shlex
import subprocess
import sys

from .settings import limit
from .shell import same


def sanitized():
    count = int(input("how many? "))
    name = shlex.quote(sys.argv[1])
    os.system(f"head -n {count} {name}")
    values = ast.literal_eval(input("values: "))
    eval("%d + %d" % (count, len(values)))


def overwritten():
    command = input()
    print(command)
    command = "uptime"
    os.system(command)


def other_context():
    untrusted = same(input())
    constant = same("uptime")
    os.system(constant)
    return untrusted


def constant_command():
    environment = dict(os.environ)
    environment["PATH"] += ":" + input()
    subprocess.run("make all", shell=True, env=environment, check=True)
    os.system(f"nice -n {limit()} make")


def list_without_shell():
    subprocess.run(["git", "log", "--author", sys.argv[1]], check=True)
    subprocess.check_call(["ls", input()], shell=False)


def parameterized(cursor):
    name = input()
    cursor.execute("SELECT * FROM users WHERE name = ?", (name,))
    cursor.executemany("INSERT INTO users VALUES (?)", [(one,) for one in sys.argv])


def after_return():
    code = input()
    if code:
        return code
    else:
        raise SystemExit(2)
    exec(code)


def own_eval():
    def eval(text):
        return json.loads(text)

    return eval(input())


def same_name_elsewhere(command="ls"):
    os.system(command)


def reads_a_command():
    command = input()
    same_name_elsewhere()
    return command


def checked():
    branch = os.environ["BRANCH"]
    if not re.fullmatch(r"[a-z0-9/-]+", branch):
        raise SystemExit(f"bad branch {branch}")
    os.system("git checkout " + branch)
    if sys.argv[1] in ("start", "stop"):
        print("ok")
    action = sys.argv[1]
    if action not in ("start", "stop"):
        return
    os.system("service " + action)
