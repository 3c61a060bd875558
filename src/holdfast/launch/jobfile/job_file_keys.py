"""The keys of a job file, as structs: their types and defaults. docs/reference/jobfile.md has a row for each."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.model.job_spec import JobKind, RestartPolicy
from holdfast.model.runtime_plan import Daemon, Hook, HookMoment, OnFailure, Prerequisite, Ssh


class JobKeys(msgspec.Struct):
    name: str
    roles: Any
    kind: JobKind = JobKind.TRAINING
    restarts: Any = {}
    checks: list[str | dict[str, dict[str, Any] | None]] | None = None
    grace: float | str = 30.0
    hang_timeout: float | str | None = None
    hang_warning: float | str = 600.0
    time_limit: float | str | None = None
    on_subhealth: str = "ignore"
    warm: bool | None = None
    preload: list[str] = []
    on_event: str = ""
    on_end: str = ""
    notify: list[str] = []
    summary: str = ""
    user: str = ""
    image: str = ""
    virtual_cluster: str = msgspec.field(default="", name="virtualCluster")
    parameters: Any = {}
    secrets: Any = {}
    prerequisites: Any = {}
    plugins: Any = {}
    #: Options for `holdfast submit` to this machine's queue; `holdfast run` ignores them.
    local: Any = None
    #: Options for `holdfast submit` to Slurm; `holdfast run` ignores them.
    slurm: Any = None
    #: Options for `holdfast submit` to Kubernetes; `holdfast run` ignores them.
    kubernetes: Any = None


ALIASES = {"virtual_cluster": "virtualCluster"}


class RoleKeys(msgspec.Struct):
    count: int
    command: list[str] | str
    env: dict[str, str | int | float | bool] = {}
    resources: Any = {}
    completion: Any = {}
    image: str = ""
    ports: dict[str, int] = {}


class CompletionKeys(msgspec.Struct):
    min_failed: int | None = 1
    min_succeeded: int | None = None


class ResourceKeys(msgspec.Struct):
    memory: str | int | None = None
    cpus: float | None = None
    devices: int | None = None


class RestartKeys(msgspec.Struct):
    max_restarts: int = RestartPolicy().max_restarts
    platform_max_restarts: int = RestartPolicy().platform_max_restarts
    max_in_a_row: int = RestartPolicy().max_in_a_row
    window_restarts: int = RestartPolicy().window_restarts
    window_s: float | str = RestartPolicy().window_s
    backoff_s: float | str = RestartPolicy().backoff_s
    backoff_cap_s: float | str = RestartPolicy().backoff_cap_s
    healthy_s: float | str = RestartPolicy().healthy_s
    max_isolations: int = RestartPolicy().max_isolations
    same_failure: int | str | bool = RestartPolicy().same_failure


class PrerequisiteKeys(msgspec.Struct):
    uri: str
    into: str = ""
    sha256: str = ""
    max_size: str | int | None = None
    extract: bool = False
    tries: int = Prerequisite(name="", uri="").tries


class PluginKeys(msgspec.Struct):
    ssh: Any = None
    daemons: Any = {}
    hooks: Any = []


class SshKeys(msgspec.Struct):
    keys: list[str] | str = []
    port: int = Ssh().port
    required: bool = False


class DaemonKeys(msgspec.Struct):
    command: list[str] | str
    env: dict[str, str | int | float | bool] = {}
    roles: list[str] | str = []
    required: bool = False
    restarts: int = Daemon(name="", command=()).restarts


class HookKeys(msgspec.Struct):
    when: HookMoment
    command: list[str] | str
    name: str = ""
    roles: list[str] | str = []
    on_failure: OnFailure = OnFailure.FAIL
    limit: float | str = Hook(when=HookMoment.ENDED, command=()).limit_s
