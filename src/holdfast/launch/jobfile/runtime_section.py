"""Reads the runtime keys of a job file: prerequisites, plugins, parameters. It checks references to parameters and
secrets, such as `<% $parameters.lr %>`, before anything starts: an unknown name is a mistake."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from holdfast.errors import BadUsage
from holdfast.fetch.prerequisite_uris import uri_of
from holdfast.launch.jobfile.job_file_keys import DaemonKeys, HookKeys, PluginKeys, PrerequisiteKeys, SshKeys
from holdfast.launch.jobfile.job_file_mistakes import Mistakes, kind_of, no_such
from holdfast.launch.jobfile.job_file_values import command_of, env_of
from holdfast.lazy_pattern import Lazy
from holdfast.model import amounts
from holdfast.model.job_spec import NAME, JobSpec
from holdfast.model.runtime_plan import Daemon, Hook, Prerequisite, RuntimePlan, Ssh
from holdfast.runtime.name_expansion import has_names, parameters_in

SHA256 = Lazy(r"[0-9a-fA-F]{64}")
PARAMETER = Lazy(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_REFERENCE = Lazy(r"<%\s*\$(parameters|secrets)\.([^\s%]+)\s*%>")
MOST_TRIES = 100
MOST_RESTARTS = 10_000
_KEYS = ("ssh-ed25519 ", "ssh-rsa ", "ssh-dss ", "ecdsa-sha2-", "sk-ssh-", "sk-ecdsa-")


def runtime_of(found: Mistakes, prerequisites: Any, plugins: Any, roles: Collection[str]) -> RuntimePlan:
    """Return the plan of everything that holdfast does besides running the workers. Add mistakes to `found`.
    `prerequisites`, `plugins`: these sections of the file. `roles`: the names of the job's roles.
    """
    wanted = [
        _prerequisite(found, f"prerequisites.{name}", name, said)
        for name, said in found.entries("prerequisites", prerequisites, "of names, as in `data: {uri: s3://bucket/x}`")
    ]
    keys = found.read("plugins", plugins or {}, PluginKeys, "with some of: ssh, daemons, hooks")
    if keys is None:
        return RuntimePlan()
    daemons = [
        _daemon(found, f"plugins.daemons.{name}", name, said, roles)
        for name, said in found.entries(
            "plugins.daemons", keys.daemons, "of names, as in `logs: {command: [fluent-bit, -c, f.conf]}`"
        )
    ]
    hooks: list[Hook | None] = []
    if isinstance(keys.hooks, list):
        hooks = [_hook(found, f"plugins.hooks[{i}]", said, roles) for i, said in enumerate(keys.hooks)]
    elif keys.hooks is not None:
        found.add(
            "plugins.hooks",
            f"expected a list, as in `[{{when: taskStarts, command: [./prepare.sh]}}]`, got {kind_of(keys.hooks)}",
        )
    return RuntimePlan(
        prerequisites=tuple(one for one in wanted if one is not None),
        daemons=tuple(one for one in daemons if one is not None),
        hooks=tuple(one for one in hooks if one is not None),
        ssh=_ssh(found, keys.ssh),
    )


def _prerequisite(found: Mistakes, where: str, name: str, said: Any) -> Prerequisite | None:
    if not NAME.fullmatch(name):
        found.add(where, "expected a name of letters, digits, `.`, `_` or `-`, at most 63")
    if isinstance(said, str):
        said = {"uri": said}
    keys = found.read(where, said, PrerequisiteKeys, "such as `{uri: s3://bucket/data}`")
    if keys is None:
        return None
    if not keys.uri.strip() or any(not letter.isprintable() for letter in keys.uri):
        found.add(
            f"{where}.uri", f"expected an address such as s3://bucket/data, or a path, in one line, got {keys.uri!r}"
        )
    elif (wrong := _mistake(keys.uri, name)) and not has_names(keys.uri):
        found.add(f"{where}.uri", wrong)
    if ".." in keys.into.split("/"):
        found.add(f"{where}.into", f"expected a path without `..`, got {keys.into!r}")
    if keys.sha256 and not SHA256.fullmatch(keys.sha256):
        found.add(f"{where}.sha256", f"expected 64 hexadecimal digits, got {keys.sha256!r}")
    most = amounts.size_bytes(keys.max_size)
    if keys.max_size is not None and (most is None or most < 1):
        found.add(f"{where}.max_size", f"expected {amounts.SIZE}, got {keys.max_size!r}")
    if not 1 <= keys.tries <= MOST_TRIES:
        found.add(f"{where}.tries", f"expected 1 to {MOST_TRIES}, got {keys.tries}")
    return Prerequisite(
        name=name,
        uri=keys.uri.strip(),
        into=keys.into,
        sha256=keys.sha256.lower(),
        most_bytes=most,
        extract=keys.extract,
        tries=keys.tries,
    )


def _mistake(uri: str, name: str) -> str:
    """Return why the address is invalid, or "" if it is valid."""
    try:
        uri_of(Prerequisite(name=name, uri=uri))
    except BadUsage as error:
        return error.message
    return ""


def _daemon(found: Mistakes, where: str, name: str, said: Any, roles: Collection[str]) -> Daemon | None:
    if not NAME.fullmatch(name):
        found.add(where, "expected a name of letters, digits, `.`, `_` or `-`, at most 63")
    keys = found.read(where, said, DaemonKeys, "such as `{command: [fluent-bit, -c, f.conf]}`")
    if keys is None:
        return None
    if not 0 <= keys.restarts <= MOST_RESTARTS:
        found.add(f"{where}.restarts", f"expected 0 to {MOST_RESTARTS}, got {keys.restarts}")
    return Daemon(
        name=name,
        command=command_of(found, f"{where}.command", keys.command),
        env=env_of(found, f"{where}.env", keys.env),
        roles=_roles(found, f"{where}.roles", keys.roles, roles),
        required=keys.required,
        restarts=keys.restarts,
    )


def _hook(found: Mistakes, where: str, said: Any, roles: Collection[str]) -> Hook | None:
    keys = found.read(where, said, HookKeys, "such as `{when: taskStarts, command: [./prepare.sh]}`")
    if keys is None:
        return None
    if keys.name and not NAME.fullmatch(keys.name):
        found.add(f"{where}.name", "expected letters, digits, `.`, `_` or `-`, at most 63")
    return Hook(
        when=keys.when,
        command=command_of(found, f"{where}.command", keys.command),
        name=keys.name,
        roles=_roles(found, f"{where}.roles", keys.roles, roles),
        on_failure=keys.on_failure,
        limit_s=found.seconds(f"{where}.limit", keys.limit, least=0.001),
    )


def _ssh(found: Mistakes, said: Any) -> Ssh | None:
    if said is None or said is False:
        return None
    keys = found.read(
        "plugins.ssh", {} if said is True else said, SshKeys, "with some of: keys, port, required, or true"
    )
    if keys is None:
        return None
    public = public_keys(found, "plugins.ssh.keys", [keys.keys] if isinstance(keys.keys, str) else keys.keys)
    if not 0 <= keys.port <= 65535:
        found.add("plugins.ssh.port", f"expected a port from 1 to 65535, or 0 for a free one, got {keys.port}")
    return Ssh(keys=public, port=keys.port, required=keys.required)


def public_keys(found: Mistakes, where: str, lines: Sequence[str]) -> tuple[str, ...]:
    """Return the public keys that may log in. Add a mistake to `found` for each invalid line."""
    keys = tuple(line.strip() for line in lines if line.strip())
    for i, key in enumerate(keys):
        if "PRIVATE KEY" in key:
            found.add(f"{where}[{i}]", "this is a private key: expected the public one, of the file `*.pub`")
        elif not key.startswith(_KEYS) or "\n" in key:
            found.add(f"{where}[{i}]", "expected one line of a `*.pub` file, as in `ssh-ed25519 AAAA… ada@laptop`")
    return keys


def _roles(found: Mistakes, where: str, said: list[str] | str, roles: Collection[str]) -> tuple[str, ...]:
    names = (said,) if isinstance(said, str) else tuple(said)
    for name in names:
        if name not in roles:
            found.add(where, f"there is no role {name!r}; expected some of: {', '.join(roles)}")
    return names


def parameters_of(found: Mistakes, said: Any, written: Mapping[str, str]) -> dict[str, str]:
    """Return a map from name to text as the user wrote it (`written`). Nested values are named by their path: `a.b`,
    `a[0]`. Add a mistake to `found` for an invalid name. `said`: the file's section.
    """
    for name, _ in found.entries("parameters", said, "of names and values, as in `{lr: 0.1}`"):
        if not PARAMETER.fullmatch(name):
            found.add(f"parameters.{name}", "expected a name of letters, digits, `_`, `-` or `.`")
    return dict(written)


def judge_references(found: Mistakes, spec: JobSpec, secrets: Collection[str], names: Mapping[str, str]) -> None:
    """Add a mistake to `found` for each reference to a parameter or secret that does not exist.

    `secrets`: the names of the secrets. `names`: the file's own keys for `roles` and `command`."""
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
