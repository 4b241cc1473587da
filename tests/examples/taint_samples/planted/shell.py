"""Helpers that the flaws run commands with."""

import os
from subprocess import check_output as run


def run_later(directory):
    list_directory("-l", directory)


def list_directory(*arguments):
    os.system("ls " + " ".join(arguments))  # sink: two-calls


def edit(*, command):
    return run(command, shell=True)  # sink: environment


def same(value):
    return value
