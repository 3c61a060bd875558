"""The work of `run` in a task's container: the arguments of holdfast's command line that its environment stands for.
Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

#: HOST:PORT of the job's owner: this container is one of its nodes.
OWNER = "HOLDFAST_OWNER"
#: The path of the job's file, unless it is `job.yaml` in the exchange directory.
JOB_FILE = "HOLDFAST_JOB_FILE"
#: The name of the variable with the user's command.
COMMAND_FROM = "HOLDFAST_COMMAND_FROM"
USER_CMD = "USER_CMD"
ROLE = "task"
_CHECKS = ("HOLDFAST_CHECKS", "HOLDFAST_NO_CHECKS", "HOLDFAST_PLUGIN")
_RETRIES = ("HOLDFAST_MAX_RESTARTS", "PET_MAX_RESTARTS")


def words_of_run(environment: Mapping[str, str], exchange: str, exists: Callable[[str], bool]) -> list[str]:
    """The arguments. `exchange`: the directory of `run`.

    A node of a job whose owner is elsewhere; else the job of a file; else the user's command, as a job of one worker.
    """
    if environment.get(OWNER):
        return ["agent"]
    if file := environment.get(JOB_FILE):
        return ["run", "--job", file]
    beside = f"{exchange}/job.yaml"
    if exists(beside):
        return ["run", "--job", beside]
    words = ["run", "--role", ROLE, "--command-from", environment.get(COMMAND_FROM) or USER_CMD]
    if not any(environment.get(name) for name in _RETRIES):
        # What starts this container starts it again, where that is wanted.
        words += ["--max-restarts", "0"]
    if not any(environment.get(name) for name in _CHECKS):
        words.append("--no-checks")
    return words
