"""The command line: one module per verb, imported only when the user types that verb. click is imported only if
needed."""

from __future__ import annotations

import gc
import sys

from holdfast.import_path import search_users_last

search_users_last()

from holdfast.errors import HoldfastError  # noqa: E402  # after the line above, which decides where it is found
from holdfast.file_modes import keep_private  # noqa: E402  # for the same reason

TYPE_CHECKING = (
    False  # importing `typing` takes longer than the rest of this module, which a run's guard need not wait for
)
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from holdfast.settings.run_options import RunOptions


def main(argv: Sequence[str] | None = None) -> None:
    """Run the console script. Print an exception of holdfast as one message, and exit with the exception's status.

    Exit status 1 is always a bug of holdfast.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    keep_private()
    if sys.stdout is None or sys.stderr is None or sys.stdin is None:
        _open_closed_streams()
    elsewhere = sys.platform != "linux"
    if elsewhere and words[:1] in (["run"], ["agent"], ["prepare"], ["check"]) and not _only_asks(words):
        from holdfast.cli.output.printing import say

        say(f"`holdfast {words[0]}` is for Linux only; explain, exits, show, logs and jobs work here")
        sys.exit(2)
    if elsewhere or words[:1] != ["run"] or _is_queued(words):
        sys.exit(_status(words))
    # Imported objects are never garbage. A garbage collection during the imports would only cost several milliseconds.
    gc.disable()
    try:
        from holdfast.main.run_guard import under_guard

        status = under_guard(lambda guard_fd: _status(words, guard_fd))
    except OSError as error:
        status = _refused(error)
    except KeyboardInterrupt:
        status = 130  # the user typed Ctrl-C before any job began
    sys.exit(status)


def _is_queued(words: list[str]) -> bool:
    """Return whether the words are `run --queue …`: the job waits for its turn, and the core starts its run."""
    if "--queue" not in words:
        return False
    from holdfast.cli.queued_run import is_queued

    return is_queued(words[1:])


def _only_asks(words: list[str]) -> bool:
    """Return whether the words only request a verb's help or the list of checks, which work on any system.

    `--help` after a script's name belongs to the script.
    """
    return words[1:2] in (["--help"], ["-h"], ["--help-all"]) or (words[0] == "check" and "--list" in words)


def _open_closed_streams() -> None:
    """Open /dev/null for streams that the caller has closed (`>&-`).

    Their output is discarded. Otherwise a file that holdfast opens would get the number of a standard stream.
    """
    import os

    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(fd)
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        if getattr(sys, name) is None:
            # closefd=False: never close these streams, because Python does not close the standard streams either
            stream = os.fdopen(number, mode, encoding="utf-8", closefd=False)
            setattr(sys, name, stream)


def _refused(error: OSError) -> int:
    """Print an error of the machine (a limit, a full disk, a removed directory) as one message. Return the exit status.

    Raise any other error again, because it is a bug of holdfast.
    """
    import errno
    import os
    from pathlib import Path

    if error.errno in (errno.EMFILE, errno.ENFILE):
        said, hint = f"the limit of open files is reached ({os.sysconf('SC_OPEN_MAX')}, ulimit -n)", "ulimit -n 4096"
    elif error.errno in (errno.EAGAIN, errno.ENOMEM):
        said, hint = "the machine gives no further process or memory", "ulimit -u; free -h; cat /sys/fs/cgroup/pids.max"
    elif error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO) and error.filename is None:
        said, hint = f"writing failed, to standard output most likely: {error.strerror}", "df -h . /tmp"
        # Discard buffered output, because flushing it at exit would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    elif error.errno == errno.ENOENT and not Path().stat().st_nlink:
        said, hint = "the working directory was removed, or moved away", 'cd "$PWD"'
    else:
        raise error
    os.write(2, f"holdfast: {said}\n  try: {hint}\n".encode())
    return 1


def _status(words: list[str], guard_fd: int | None = None) -> int:
    """Run the verb and return the exit status. All output is flushed when this function returns."""
    try:
        status = _main(words, guard_fd)
        sys.stdout.flush()
    except HoldfastError as error:
        from holdfast.cli.output.printing import say

        say(str(error))
        status = error.exit_status
        if words[:1] in (["run"], ["agent"]):
            import os

            from holdfast.node.exit_status import refused

            refused(os.environ, status, error.message, f"try: {error.hint}" if error.hint else "")
    except KeyboardInterrupt:
        status = 130
    except BrokenPipeError:
        # The reader of the output has exited, as in `holdfast jobs | head`. Discard the rest of the output, because the
        # flush at exit would fail.
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
    """Return whether click ended because the reader of its output has exited.

    In that case click exits with status 1 and wraps stdout in a class, whose module differs between click's releases.
    """
    return end.code == 1 and "PacifyFlush" in type(sys.stdout).__name__


def _main(words: list[str], guard_fd: int | None) -> object:
    gc.disable()
    if words[:1] == ["run"] and _is_queued(words):
        gc.enable()
        from holdfast.cli.queued_run import run_queued

        return run_queued(words[1:])
    if words[:1] == ["run"]:
        from holdfast.cli.options.run_option_table import over_nodes, read_run_options, render

        if (options := read_run_options(words[1:])) is not None:
            from holdfast.main.run_command import start

            status = start(options, guard_fd, render=render, over_nodes=over_nodes)
            _look_for_old(options)
            return status
    if words[:1] == ["explain"]:
        from holdfast.cli.options.explain_options import explaining
        from holdfast.cli.options.explain_options import read_explain_options as read_explain

        if (asked := read_explain(words[1:])) is not None:
            explaining(**asked)  # garbage collection stays off, because the process ends after the explanation
            return 0
    gc.enable()
    from holdfast.cli.options.verb_group import typed

    return typed(words, guard_fd)


def _look_for_old(options: RunOptions) -> None:
    """Remove jobs that exceed the settings' limits on old jobs, at most once a day.

    A run inside a job or a container removes none.
    """
    import os

    if "HOLDFAST_ATTEMPT" in os.environ or os.environ.get("HOLDFAST_TERMINATION_LOG"):
        return
    from holdfast.cli.job_access.job_retention import after_a_run

    after_a_run(options, os.environ)


def __getattr__(name: str) -> Any:
    if name == "cli":
        from holdfast.cli.options.verb_group import cli

        return cli
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
