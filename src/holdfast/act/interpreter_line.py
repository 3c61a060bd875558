"""Explains why the kernel did not start a script: its `#!` line is wrong or missing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

#: The kernel reads this many bytes of a script's first line (BINPRM_BUF_SIZE).
KERNEL_BYTES = 256
#: A message shows at most this many characters of a script's first line.
MOST_SHOWN = 60
_MARK = b"\xef\xbb\xbf"


def script_fault(command: str, env: Mapping[str, str]) -> str:
    """Return the mistake in the script's first line, and its remedy: `its first line …; …`. Return "" if the line is
    right, or if the file is no readable script.
    """
    import shlex  # imported here, because few starts fail
    import shutil

    path = command if "/" in command else shutil.which(command, path=env.get("PATH")) or command
    try:
        if not os.access(path, os.X_OK):
            return ""  # nothing to explain: the file's mode is wrong, not its first line
        with Path(path).open("rb") as file:
            head = file.read(2 * KERNEL_BYTES)
    except OSError:
        return ""
    path = shlex.quote(path)
    line, _, _ = head.partition(b"\n")
    if head.startswith(_MARK):
        return f"its first line begins with a byte order mark; remove it: sed -i '1s/^\\xEF\\xBB\\xBF//' {path}"
    if not head.startswith(b"#!"):
        if not head or b"\0" in head:
            return ""  # nothing to explain: the file is a binary program
        return f"its first line is no `#!` line; begin it with `#!/bin/bash`, or start it as `bash {path}`"
    shown = _shown(line)
    words = line[2:].split(maxsplit=1)
    if not words:
        return f"its first line, `{shown}`, names no interpreter; write `#!/bin/bash`"
    if line.endswith(b"\r"):
        return f"its first line, `{shown}`, ends with a carriage return (Windows line ends); sed -i 's/\\r$//' {path}"
    if len(line) >= KERNEL_BYTES:
        return (
            f"its first line, `{shown}`, is longer than the {KERNEL_BYTES - 1} bytes that the kernel reads; "
            "use a shorter path, or `#!/usr/bin/env python3`"
        )
    interpreter = Path(os.fsdecode(words[0]))
    if not interpreter.exists():
        return (
            f"its first line, `{shown}`, names an interpreter that does not exist here; "
            f"name one that does, such as `#!/usr/bin/env {interpreter.name}`"
        )
    if interpreter.is_dir() or not os.access(interpreter, os.X_OK):
        return f"its first line, `{shown}`, names {interpreter}, which is no program; name an interpreter there"
    return ""


def _shown(line: bytes) -> str:
    text = line.decode(errors="replace").replace("\r", "\\r")
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"
