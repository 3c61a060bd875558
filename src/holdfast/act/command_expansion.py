"""Builds a worker's final command line: expands the names in it from the worker's environment, and writes its script to
a file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from holdfast.model.job_spec import Role
from holdfast.runtime.name_expansion import (
    ExpansionTarget,
    NameValues,
    expand,
    expand_command,
    has_names,
    reader_of_script,
)

#: The name of the file in a worker's directory that contains the worker's script.
SCRIPT = "command"


class RoleExpansion:
    """Expands the names (`<% … %>`) in a role's command, script and variables for one worker."""

    def __init__(self, role: Role, env: Mapping[str, str], parameters: Mapping[str, str]) -> None:
        """Store the values for the names. `env`: the worker's environment. `parameters`: the job's parameters, name →
        value."""
        self._role = role
        self._known = NameValues.of(env, parameters)

    def variables(self) -> dict[str, str]:
        """Return the role's variables that contain `<%`, with their values expanded. A value may contain a secret.
        Raises `BadUsage` for an unknown name.
        """
        role = self._role
        return {
            name: expand(value, self._known, f"env.{name} of {role.name}", ExpansionTarget.HOLDFAST)
            for name, value in role.env.items()
            if "<%" in value
        }

    def command(self, directory: Path) -> tuple[str, ...]:
        """Return the worker's command, and write its script into `directory`. Raises `BadUsage` for an unknown name,
        and OSError if the script cannot be written."""
        role, where = self._role, f"the command of {self._role.name}"
        words = role.command
        if any(map(has_names, words)):
            words = expand_command(words, self._known, where)
        if not role.script:
            return words
        text = expand(role.script, self._known, where, reader_of_script(role.command))
        path = directory / SCRIPT
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
        return (*words, str(path))
