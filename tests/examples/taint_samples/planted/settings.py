"""Settings that are read when the package is imported."""

import os

STARTUP = os.environ.get("PLANTED_STARTUP", "")  # source: global
LIMIT = int(os.environ.get("PLANTED_LIMIT", "10"))


def startup_code():
    return STARTUP


def limit():
    return LIMIT
