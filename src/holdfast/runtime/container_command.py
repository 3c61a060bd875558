"""Translates the environment of a task's container into arguments for `holdfast run`.

This module does no input or output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

#: The variable with HOST:PORT of the job's owner. If it is set, this container is one of the job's nodes.
OWNER = "HOLDFAST_OWNER"
#: The variable with the path of the job file. If it is not set, the path is `job.yaml` in the exchange directory.
JOB_FILE = "HOLDFAST_JOB_FILE"
#: The variable with the name of another variable; the other one contains the user's command.
COMMAND_FROM = "HOLDFAST_COMMAND_FROM"
USER_CMD = "USER_CMD"
ROLE = "task"
_CHECKS = ("HOLDFAST_CHECKS", "HOLDFAST_NO_CHECKS", "HOLDFAST_PLUGIN")
_RETRIES = ("HOLDFAST_MAX_RESTARTS", "PET_MAX_RESTARTS")


def words_of_run(environment: Mapping[str, str], exchange: str, exists: Callable[[str], bool]) -> list[str]:
    """Return the arguments. `exchange`: the directory with `run`. `exists`: whether a path exists.

    If the variable of the owner is set, the container becomes one of its nodes. Otherwise it runs the job in the job
    file, if there is one. Otherwise it runs the user's command as a job with one worker.
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
        # The platform that starts this container also restarts it, so holdfast does not.
        words += ["--max-restarts", "0"]
    if not any(environment.get(name) for name in _CHECKS):
        words.append("--no-checks")
    return words
