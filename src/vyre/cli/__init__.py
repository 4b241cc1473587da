"""The ``vyre`` command.

Exit codes: 0 fine, 1 the program or its data is wrong, 2 usage, 3 backend unavailable. Errors are told in a
sentence on standard error; a traceback is shown only when VYRE_DEBUG is set.
"""

from __future__ import annotations

import os
import sys

from vyre.errors import BackendUnavailable, UnsupportedFeature, VyreError

EXIT_WRONG = 1
EXIT_USAGE = 2
EXIT_UNAVAILABLE = 3


def main() -> None:
    """The entry point of the command."""
    try:
        from vyre.cli.commands import app

        app()
    except VyreError as error:
        unavailable = isinstance(error, (BackendUnavailable, UnsupportedFeature))
        _fail(f"error: {error}", EXIT_UNAVAILABLE if unavailable else EXIT_WRONG)
    except BrokenPipeError:
        # The reader of our output went away; Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_WRONG)
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.filename is not None else str(error)
        _fail(f"error: {what}. Fix: check the path, its permissions and the space left.", EXIT_WRONG)
    except MemoryError:
        _fail("error: out of memory. Fix: use smaller buffers or a smaller grid.", EXIT_WRONG)
    except Exception as error:
        _fail(
            f"error: vyre itself failed ({type(error).__name__}: {error}). "
            "Fix: please report this, with the program and the command; VYRE_DEBUG=1 shows where it happened.",
            EXIT_WRONG,
        )


def _fail(message: str, code: int) -> None:
    if os.environ.get("VYRE_DEBUG"):
        raise
    print(message, file=sys.stderr)
    sys.exit(code)
