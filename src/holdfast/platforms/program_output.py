"""Runs a platform's program for one answer, with limits of its time and output; and the text that an answer is."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Sequence

import msgspec

from holdfast.errors import BadUsage

#: Limits of one command: how long it may take, in seconds, and how much of its output is read.
LIMIT_S = 60.0
MOST_BYTES = 64 << 20


class PrintedLog(msgspec.Struct, frozen=True, kw_only=True):
    """A log that a program has printed. `name`: the command."""

    name: str
    text: str


def program_output(words: Sequence[str]) -> tuple[int, str, str]:
    """Run a command; return its status, its output up to a limit, and its first line on stderr. Raise `BadUsage`."""
    try:
        child = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # so that a wrapper script and its children can be killed together
        )
    except FileNotFoundError:
        raise BadUsage(f"{words[0]} was not found: it is needed to read this job", hint=f"which {words[0]}") from None
    except OSError as error:
        raise BadUsage(f"{words[0]} cannot be run: {error.strerror or error}", hint=f"which {words[0]}") from None
    assert child.stdout is not None and child.stderr is not None  # both are pipes
    out, err = bytearray(), bytearray()
    until = time.monotonic() + LIMIT_S
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ, out)
        selector.register(child.stderr, selectors.EVENT_READ, err)
        while selector.get_map() and len(out) + len(err) < MOST_BYTES and (left_s := until - time.monotonic()) > 0:
            for key, _ in selector.select(left_s):
                data = os.read(key.fd, 1 << 16)
                if not data:
                    selector.unregister(key.fileobj)
                key.data.extend(data)
    full = len(out) >= MOST_BYTES
    late = time.monotonic() >= until
    if full or late:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    status = child.wait()
    child.stdout.close()
    child.stderr.close()
    told = err.decode(errors="replace").strip().splitlines()
    trouble = (
        f"it did not end within {LIMIT_S:g} s" if late else told[-1] if told else f"it exited with status {status}"
    )
    return 0 if full else status, out.decode(errors="replace"), trouble
