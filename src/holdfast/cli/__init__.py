"""The command line: one file a verb, imported only when that verb is typed; click is imported only when it is
needed."""

from __future__ import annotations

import gc
import sys

from holdfast.errors import HoldfastError
from holdfast.file_modes import keep_private

TYPE_CHECKING = False  # `typing` takes longer than everything else here, and the guard of a run needs none of it
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from holdfast.settings.run_options import RunOptions


def main(argv: Sequence[str] | None = None) -> None:
    """The console script. Holdfast's own exceptions become one message and their exit status; status 1 is always a bug
    of holdfast."""
    words = list(sys.argv[1:] if argv is None else argv)
    keep_private()
    if sys.stdout is None or sys.stderr is None or sys.stdin is None:
        _open_closed_streams()
    elsewhere = sys.platform != "linux"
    if elsewhere and words[:1] in (["run"], ["agent"], ["prepare"], ["check"]) and not _only_asks(words):
        from holdfast.cli._printing import say

        say(f"`holdfast {words[0]}` is for Linux only; explain, exits, show, logs and jobs work here")
        sys.exit(2)
    if elsewhere or words[:1] != ["run"]:
        sys.exit(_status(words))
    # Nothing that is imported is garbage; looking for some among it costs a start several milliseconds.
    gc.disable()
    try:
        from holdfast.main.run_guard import under_guard

        status = under_guard(lambda guard_fd: _status(words, guard_fd))
    except OSError as error:
        status = _refused(error)
    except KeyboardInterrupt:
        status = 130  # nothing has begun
    sys.exit(status)


def _only_asks(words: list[str]) -> bool:
    """Whether it is a question about the verb, which needs no Linux. `--help` after a script's name belongs to the
    script."""
    return words[1:2] in (["--help"], ["-h"]) or (words[0] == "check" and "--list" in words)


def _open_closed_streams() -> None:
    """For `>&-`: output to a closed stream is discarded, and no file of holdfast gets a standard stream's number."""
    import os

    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(fd)
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        if getattr(sys, name) is None:
            # Never closed, like the streams that Python makes itself.
            stream = os.fdopen(number, mode, encoding="utf-8", closefd=False)
            setattr(sys, name, stream)


def _refused(error: OSError) -> int:
    """Errors of the surroundings, as one message: a limit, a full disk, a removed directory. Other errors are bugs."""
    import errno
    import os
    from pathlib import Path

    if error.errno in (errno.EMFILE, errno.ENFILE):
        said, hint = f"the limit of open files is reached ({os.sysconf('SC_OPEN_MAX')}, ulimit -n)", "ulimit -n 4096"
    elif error.errno in (errno.EAGAIN, errno.ENOMEM):
        said, hint = "the machine gives no further process or memory", "ulimit -u; free -h; cat /sys/fs/cgroup/pids.max"
    elif error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO) and error.filename is None:
        said, hint = f"writing failed, to standard output most likely: {error.strerror}", "df -h . /tmp"
        # What is still buffered would be complained about again when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    elif error.errno == errno.ENOENT and not Path().stat().st_nlink:
        said, hint = "the working directory was removed, or moved away", 'cd "$PWD"'
    else:
        raise error
    os.write(2, f"holdfast: {said}\n  try: {hint}\n".encode())
    return 1


def _status(words: list[str], guard_fd: int | None = None) -> int:
    """Run the verb; returns the exit status. All output is written when this returns."""
    try:
        status = _main(words, guard_fd)
        sys.stdout.flush()
    except HoldfastError as error:
        from holdfast.cli._printing import say

        say(str(error))
        status = error.exit_status
        if words[:1] in (["run"], ["agent"]):
            import os

            from holdfast.node.exit_status import refused

            refused(os.environ, status, error.message, f"try: {error.hint}" if error.hint else "")
    except KeyboardInterrupt:
        status = 130
    except BrokenPipeError:
        # `holdfast jobs | head`: the reader has seen enough. Python would complain again while flushing at exit.
        import os

        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        status = 0
    except OSError as error:
        status = _refused(error)
    except SystemExit as end:
        sys.stdout.flush()
        status = 0 if _reader_left(end) else end.code
    return status if isinstance(status, int) else 0


def _reader_left(end: SystemExit) -> bool:
    """Whether click met a closed pipe. It then ends with 1 and wraps the stream, in a class that has moved between
    releases."""
    return end.code == 1 and "PacifyFlush" in type(sys.stdout).__name__


def _main(words: list[str], guard_fd: int | None) -> object:
    gc.disable()
    if words[:1] == ["run"]:
        from holdfast.cli._run_options import over_nodes, read_run_options, render

        if (options := read_run_options(words[1:])) is not None:
            from holdfast.main.run_command import start

            status = start(options, guard_fd, render=render, over_nodes=over_nodes)
            _look_for_old(options)
            return status
    if words[:1] == ["explain"]:
        from holdfast.cli._explain_options import explaining
        from holdfast.cli._explain_options import read_explain_options as read_explain

        if (asked := read_explain(words[1:])) is not None:
            explaining(**asked)  # without collecting: what a report is made of goes with the process
            return 0
    gc.enable()
    from holdfast.cli._verb_group import typed

    return typed(words, guard_fd)


def _look_for_old(options: RunOptions) -> None:
    """Once a day: remove the jobs that the settings do not keep. A run of a job's own workers, or inside a container,
    does not."""
    import os

    if "HOLDFAST_ATTEMPT" in os.environ or os.environ.get("HOLDFAST_TERMINATION_LOG"):
        return
    from holdfast.cli._job_retention import after_a_run

    after_a_run(options, os.environ)


def __getattr__(name: str) -> Any:
    if name == "cli":
        from holdfast.cli._verb_group import cli

        return cli
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
