"""Builds a worker's final command line: expands names from the worker's environment, and writes its script
to a file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from holdfast.model.job_spec import Role

#: The name of the script's file in the worker's directory.
SCRIPT = "command"


def expanded_variables(role: Role, env: Mapping[str, str], parameters: Mapping[str, str]) -> dict[str, str]:
    """Return the role's variables that contain `<%`, expanded; they may contain a secret. Raises `BadUsage` for an
    unknown name."""
    from holdfast.runtime.name_expansion import ExpansionTarget, NameValues, expand

    known = NameValues.of(env, parameters)
    return {
        name: expand(value, known, f"env.{name} of {role.name}", ExpansionTarget.HOLDFAST)
        for name, value in role.env.items()
        if "<%" in value
    }


def expanded_command(
    role: Role, env: Mapping[str, str], parameters: Mapping[str, str], directory: Path
) -> tuple[str, ...]:
    """Return the command of a worker with this environment, and write its script. Raises `BadUsage` for an unknown
    name, and OSError if the script cannot be written."""
    words = role.command
    if any("$" in word or "<%" in word for word in words):
        from holdfast.runtime.name_expansion import NameValues, expand_command, has_names  # rarely needed

        if any(map(has_names, words)):
            words = expand_command(words, NameValues.of(env, parameters), f"the command of {role.name}")
    if not role.script:
        return words
    from holdfast.runtime.name_expansion import NameValues, expand, reader_of_script

    reader = reader_of_script(role.command)
    text = expand(role.script, NameValues.of(env, parameters), f"the command of {role.name}", reader)
    path = directory / SCRIPT
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
    return (*words, str(path))
