# ruff: noqa: PERF402, SIM115, UP031
"""Ten flaws, each with another source, sink and way between them."""

import os
import pickle
import sqlite3
import subprocess
import sys

import requests

from . import shell
from .settings import startup_code
from .shell import run_later as later


def through_two_calls():
    name = input("directory: ")  # source: two-calls
    later(name.strip())


class Job:
    """Keeps a command for another method."""

    def __init__(self, command, *, quiet=False):
        self.command = command
        self.quiet = quiet

    def describe(self):
        return f"job {self.quiet}"

    def start(self):
        print(self.describe())
        os.popen(self.command)  # sink: attribute


def make_job():
    return Job(sys.argv[1], quiet=True)  # source: attribute


def through_a_loop(host):
    command = "ping"
    option = ""
    while len(command) < 200:
        subprocess.call(command, shell=True)  # sink: loop
        command = command + " " + option
        option = os.getenv("PING_OPTION")  # source: loop
    return host


def through_a_container():
    parts = ["tar", "cf", "out.tar"]
    for argument in sys.argv[1:]:  # source: container
        parts.append(argument)
    line = " ".join(parts)
    subprocess.run(line, shell=True, check=True)  # sink: container


def through_formatted_sql(path):
    with sqlite3.connect(path) as connection:
        cursor = connection.cursor()
        user = os.environ["DB_USER"]  # source: sql
        table, _ = "users", 3
        query = f"SELECT * FROM {table} WHERE name = '{user}'"
        cursor.execute(query)  # sink: sql
        return cursor.fetchall()


def download(url):
    answer = requests.get(url, timeout=3)  # source: returned
    if answer.status_code != 200:
        return 0, b""
    return answer.status_code, answer.content


def through_a_returned_value():
    status, content = download("https://example.org/state")
    print(status)
    return pickle.loads(content)  # sink: returned


def shorten(expression, depth):
    if depth == 0:
        return eval(expression)  # sink: recursion
    return shorten(expression[1:], depth - 1)


def through_recursion():
    text = sys.stdin.readline()  # source: recursion
    return shorten(text, 5)


def through_a_default():
    options = {"editor": os.environ.get("EDITOR", "vi")}  # source: environment
    editor = options.get("editor") or "vi"
    return shell.edit(command="%s notes.txt" % editor)


def through_finally(path):
    command = "true"
    try:
        command = open(path).readline() + input()  # source: finally
        return int(command)
    except ValueError:
        return None
    finally:
        os.system(command)  # sink: finally


def through_a_global():
    exec(startup_code())  # sink: global
