"""Checks a job file's references, such as `<% $parameters.lr %>`, before anything starts: an unknown name
is a mistake."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping

from holdfast.launch.jobfile.job_file_mistakes import Mistakes, no_such
from holdfast.lazy_pattern import Lazy
from holdfast.model.job_spec import JobSpec
from holdfast.runtime.name_expansion import parameters_in

_REFERENCE = Lazy(r"<%\s*\$(parameters|secrets)\.([^\s%]+)\s*%>")


def judge(found: Mistakes, spec: JobSpec, secrets: Collection[str], names: Mapping[str, str]) -> None:
    """Add a mistake for each reference to a parameter or secret that does not exist.

    `secrets`: the names of the secrets. `names`: the file's own keys for `roles` and `command`.
    """
    known = {"parameters": {**parameters_in(os.environ), **spec.parameters}, "secrets": secrets}
    for where, text in _texts(spec, names):
        for token in _REFERENCE.finditer(text) if "<%" in text else ():
            group, key = token[1], token[2]
            if key not in known[group]:
                found.add(where, no_such(f"name in `{group}`", key, known[group]))


def _texts(spec: JobSpec, names: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for role in spec.roles:
        where = f"{names['roles']}.{role.name}"
        yield from ((f"{where}.{names['command']}", word) for word in role.command)
        yield from ((f"{where}.env.{key}", value) for key, value in role.env.items())
    plan = spec.runtime
    for daemon in plan.daemons:
        yield from ((f"plugins.daemons.{daemon.name}.command", word) for word in daemon.command)
        yield from ((f"plugins.daemons.{daemon.name}.env.{key}", value) for key, value in daemon.env.items())
    for i, hook in enumerate(plan.hooks):
        yield from ((f"plugins.hooks[{i}].command", word) for word in hook.command)
    for one in plan.prerequisites:
        yield f"prerequisites.{one.name}.uri", one.uri
