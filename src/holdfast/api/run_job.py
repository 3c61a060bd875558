"""Implements `holdfast.run`, which runs `holdfast run` as a child process of the calling program.

The supervisor is a separate process for four reasons. It handles signals, which only a program's main thread may do,
and a notebook's main thread belongs to its event loop. It forks, which is unsafe beside other threads. It reaps every
child process, and would also reap the caller's. And a bug in the calling program must not kill the job.
"""

from __future__ import annotations

import codecs
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import msgspec

from holdfast.api.public_report import Report, of_job
from holdfast.errors import BadUsage, HoldfastError
from holdfast.record.job_directory import logs_of
from holdfast.record.report_file import from_json_object
from holdfast.record.state_directory import home_of
from holdfast.safe_files import read_file
from holdfast.settings.settings_table import BY_NAME
from holdfast.settings.value_kinds import ValueKind
from holdfast.untrusted import MOST_BYTES, Malformed, json_as

Option = str | int | float | bool | Path | Sequence[str] | None

#: Number of last stderr lines that are kept. If the command is refused, they contain the message.
_KEPT_LINES = 60
_READ = 65536
_JOB_FILE = "job.yaml"
_SCHEMA = "holdfast schema jobfile"


def run(
    what: str | Path | Sequence[str] | Mapping[str, Any],
    args: Sequence[str | Path | int | float] = (),
    *,
    nproc_per_node: int | str | None = None,
    module: bool = False,
    name: str | None = None,
    max_restarts: int | None = None,
    home: str | Path | None = None,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    show: bool = True,
    **options: Option,
) -> Report:
    """Run a job, wait for its end, and return its report, even if the job failed.

    `what`: path of a Python script with its `args`; path of a job file (`.yaml`, `.yml`); content of a job file as a
        mapping; or a command as a list.
    `nproc_per_node`, `name`, `max_restarts`: as in `holdfast run`.
    `module`: `what` is a module's name, as for `python -m`.
    `home`: path of the state directory.
    `env`: variables to add to those of this process.
    `show`: print the output of the workers and of holdfast to `sys.stdout` and `sys.stderr`.
    `options`: options of `holdfast run` by name, with underscores (`hang_timeout=60`, `no_checks=True`).

    The function may be called from any thread. Ctrl-C stops the job as in a terminal, and a second Ctrl-C kills it at
    once. `KeyboardInterrupt` is raised after the job has ended. The job also ends when this process ends. Raises
    `BadUsage` with a `hint` for an invalid option, script or job file, before anything is started. Raises
    `HoldfastError` if the run left no report, because its supervisor was killed or its platform restarts the job.
    """
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        report_path = Path(folder) / "report.json"
        if "json" in options:
            raise BadUsage("json: `run` returns the report", hint="holdfast.run('train.py').to_dict()")
        given = {"nproc_per_node": nproc_per_node, "name": name, "max_restarts": max_restarts, **options}
        if (asked := given.pop("report", None)) is not None:
            report_path = Path(cwd or ".", str(asked)).absolute()
            report_path.unlink(missing_ok=True)
        words = ["run", "--report", str(report_path), *_words(given), *_program(what, args, module, Path(folder))]
        environment = {**os.environ, **(env or {})} | ({"HOLDFAST_HOME": os.fspath(home)} if home is not None else {})
        status, said = _carried(words, cwd, environment, show)
        found = _report(report_path, home_of(environment))
    if found is not None:
        return found
    refusal = _without_report(status, said)
    if isinstance(what, Mapping) and (place := str(Path(folder) / _JOB_FILE)) in f"{refusal.message} {refusal.hint}":
        # Replace the path of the temporary file, which the caller does not know and which no longer exists.
        message = refusal.message.replace(f"job file {place}", "the job's mapping").replace(place, "the job's mapping")
        refusal = type(refusal)(message, hint=_SCHEMA)
    raise refusal


def _words(given: Mapping[str, Option]) -> list[str]:
    """Turn options into command-line arguments: `{"hang_timeout": 60}` becomes `--hang-timeout=60`."""
    words: list[str] = []
    for key, value in given.items():
        name = key.replace("_", "-")
        setting = BY_NAME.get(name)
        if value is None or (value is False and not (setting is not None and setting.no_option)):
            continue
        if isinstance(value, bool):
            words.append(f"--{name}" if value else f"--no-{name}")
        elif isinstance(value, Sequence) and not isinstance(value, str):
            each = [str(item) for item in value]
            repeated = setting is not None and setting.kind is ValueKind.FILES
            words += [f"--{name}={item}" for item in each] if repeated else [f"--{name}={','.join(each)}"]
        else:
            words.append(f"--{name}={value}")
    return words


def _program(
    what: str | Path | Sequence[str] | Mapping[str, Any], args: Sequence[object], module: bool, folder: Path
) -> list[str]:
    rest = [str(arg) for arg in args]
    if isinstance(what, Mapping):
        job_file = folder / _JOB_FILE
        try:
            job_file.write_bytes(msgspec.json.encode(what))  # JSON is valid YAML
        except (TypeError, UnicodeEncodeError) as error:
            raise BadUsage(f"the job's mapping: {error}", hint=_SCHEMA) from None
        return ["--job", str(job_file), *rest]
    if not isinstance(what, str | Path):
        words = [str(word) for word in what]
        if words[:1] and words[0].startswith("-"):
            raise BadUsage(f"{words[0]}: expected a program as the first word", hint="holdfast.run(['bash', 'job.sh'])")
        return ["--no-python", *words, *rest]
    script = os.fspath(what)
    if not script:
        raise BadUsage(
            "the script's name is empty: expected a script, a job file or a command", hint="holdfast.run('train.py')"
        )
    if script.startswith("-"):
        raise BadUsage(
            f"{script}: expected a script, a module or a job file, and this would be an option",
            hint="holdfast.run('./-x.py'), or holdfast.run('train.py', hang_timeout=60) for an option",
        )
    if script.endswith((".yaml", ".yml")) and not module:
        return ["--job", script, *rest]
    return [*(["--module"] if module else []), script, *rest]


def _carried(words: list[str], cwd: str | Path | None, environment: Mapping[str, str], show: bool) -> tuple[int, str]:
    """Run the command `holdfast run`. Return its exit status and its last lines of stderr."""
    # -P prevents the import of a file `holdfast.py` in the caller's directory. In a new session Ctrl-C in the terminal
    # reaches only the caller, which forwards it. Otherwise each Ctrl-C would count twice.
    command = [sys.executable, "-P", "-m", "holdfast.api.run_child", str(os.getpid()), *words]
    try:
        child = subprocess.Popen(
            command,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise BadUsage(f"the run cannot be started: {error}", hint="ls -ld .; ulimit -u") from error
    said: deque[str] = deque(maxlen=_KEPT_LINES)
    interrupted: KeyboardInterrupt | None = None
    with child, _Streams(child, said, show) as streams:
        while True:
            try:
                streams.pass_on()
                break
            except KeyboardInterrupt as error:
                interrupted = error
                child.send_signal(signal.SIGINT)
            except BaseException:
                child.terminate()
                streams.mute()
                streams.pass_on()
                raise
    if interrupted is not None:
        raise interrupted
    return child.returncode, "".join(said)


class _Streams:
    """Reads stdout and stderr of the child until the child has ended.

    `said`: receives the last lines of stderr. `show`: print all output.
    """

    def __init__(self, child: subprocess.Popen[bytes], said: deque[str], show: bool) -> None:
        self._child = child
        self._said = said
        self._show = show
        self._part = ""
        self._selector = selectors.DefaultSelector()
        self._ended = os.pidfd_open(child.pid)
        self._selector.register(self._ended, selectors.EVENT_READ, None)
        for stream, out in ((child.stdout, True), (child.stderr, False)):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            decoder = codecs.getincrementaldecoder("utf-8")("replace")
            self._selector.register(stream.fileno(), selectors.EVENT_READ, (out, decoder))

    def pass_on(self) -> None:
        """Read all output of the child until the child has ended, and print it."""
        over = False
        while not over:
            ready = self._selector.select()
            over = any(key.data is None for key, _ in ready)
            for key in list(self._selector.get_map().values()) if over else [key for key, _ in ready]:
                if key.data is not None:
                    while self._read(key.fd, *key.data) and over:
                        pass
        self._child.wait()

    def mute(self) -> None:
        """Stop printing the child's output, but continue to read it."""
        self._show = False

    def _read(self, fd: int, out: bool, decoder: codecs.IncrementalDecoder) -> bool:
        try:
            data = os.read(fd, _READ)
        except BlockingIOError:
            return False
        text = decoder.decode(data, final=not data)
        if not data:
            self._selector.unregister(fd)
        if text:
            if not out:
                lines = (self._part + text).splitlines(keepends=True)
                self._part = lines.pop()[-_READ:] if lines and not lines[-1].endswith("\n") else ""
                self._said.extend(lines)
            if self._show:
                _print(sys.stdout if out else sys.stderr, text)
        return bool(data)

    def __enter__(self) -> _Streams:
        return self

    def __exit__(self, *_: object) -> None:
        if self._part:
            self._said.append(self._part)
        self._selector.close()
        os.close(self._ended)


def _print(stream: TextIO | None, text: str) -> None:
    if stream is None:
        return  # a program without a console has no streams
    encoding = stream.encoding or "utf-8"
    stream.write(text.encode(encoding, "replace").decode(encoding))
    stream.flush()


def _report(path: Path, home: Path) -> Report | None:
    try:
        report = from_json_object(json_as(read_file(path, MOST_BYTES), dict[str, Any]))
        return of_job(report, logs_of(home, report.job_id))
    except (OSError, Malformed):
        return None


def _without_report(status: int, said: str) -> HoldfastError:
    """Return the command's last message as an exception.

    The message has the form `holdfast: MESSAGE`, with ` try: HINT` below it.
    """
    message, hint = "", ""
    if "holdfast: " in said:
        block = said.rpartition("holdfast: ")[2].splitlines()
        hints = [line.strip().removeprefix("try: ") for line in block if line.startswith("  try: ")]
        hint = hints[0] if hints else ""
        message = "\n".join(line for line in block if not line.startswith("  try: "))
    if status == BadUsage.exit_status:
        return BadUsage(message or "the run was refused", hint=hint)
    how = f"signal {-status}" if status < 0 else f"status {status}"
    last = f"; its last words: {message}" if message else ""
    return HoldfastError(f"the run ended with {how} and left no report{last}", hint=hint or "holdfast jobs")
