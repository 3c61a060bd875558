"""Gives workers the addresses and ports of their peers: in OpenPAI's variables, and in a file with all of them.

Only jobs that need their peers' addresses import this module.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from pathlib import Path

from holdfast.act.worker_config import WorkerConfig
from holdfast.model.gang_protocol import Peers
from holdfast.model.job_spec import Placement
from holdfast.runtime import openpai_variables
from holdfast.safe_files import replace_file

#: The name of the file with the peers' addresses, in the attempt's directory next to the workers' directories.
FILE = "peers.env"
CONFIG, CONFIG_FILE = "HOLDFAST_CONFIG", "job.json"
#: Variables with the directory for the job's results. holdfast sets HOLDFAST_OUTPUT and PAI_OUTPUT_DIR for workers. A
#: site may set HOLDFAST_OUTPUT_DIR or PAI_OUTPUT_DIR.
OUTPUT, OUTPUT_DIR, PAI_OUTPUT_DIR = "HOLDFAST_OUTPUT", "HOLDFAST_OUTPUT_DIR", "PAI_OUTPUT_DIR"
TMP = "HOLDFAST_TMP"
#: A variable that a site may set. The site's value takes precedence over the job's.
FILE_SYSTEM = "PAI_DEFAULT_FS_URI"
#: The variable with the path of the peers file.
VARIABLE = "HOLDFAST_PEERS"


class PeerEnvironment:
    """The peer variables of one attempt for the workers of this machine."""

    def __init__(self, attempt: int, peers: Peers, setting: WorkerConfig) -> None:
        """Write the files for the workers. `attempt`: the attempt's number. `peers`: the addresses and ports of all
        workers. `setting`: the configuration of this machine's workers."""
        self.attempt = attempt
        self._spec = setting.spec
        self._names = openpai_variables.peer_names(peers)
        runtime = self._spec.runtime
        self._beside = [word for daemon in runtime.daemons for word in daemon.command]
        self._beside += [word for hook in runtime.hooks for word in hook.command]
        self._user, self._cwd_of = _user(), setting.cwd_of
        path = setting.logs / f"attempt-{attempt}" / FILE
        try:
            replace_file(path, openpai_variables.file_text(self._names).encode())
        except OSError:
            self._file = {}  # ignore a full or read-only disk: the workers then have only the variables
        else:
            self._file = {VARIABLE: str(path)}
        self._file |= self._config(setting, path.with_name(CONFIG_FILE)) | self._output(setting)
        self._directory = setting.directory

    def _config(self, setting: WorkerConfig, path: Path) -> dict[str, str]:
        """Write the job as JSON for its workers. Return the variable with the file's path."""
        try:
            replace_file(path, setting.config())
        except OSError:
            return {}
        return {CONFIG: str(path)}

    def _output(self, setting: WorkerConfig) -> dict[str, str]:
        """Return the variables with the directory for the job's results: the site's directory, or else one that
        outlives the job's record.
        """
        given = next(
            (setting.environment[name] for name in (OUTPUT_DIR, PAI_OUTPUT_DIR) if setting.environment.get(name)), ""
        )
        path = given or str(setting.home / "output" / setting.job_id)
        if "://" not in path:
            path = str(setting.cwd / path)
            try:
                Path(path).mkdir(mode=0o755, parents=True, exist_ok=True)
            except OSError:
                pass  # ignore the error, because the worker gets it too when it writes to the directory
        return {OUTPUT: path, PAI_OUTPUT_DIR: path}

    def _own_tmp(self, placement: Placement) -> dict[str, str]:
        path = self._directory(self.attempt, placement) / "tmp"
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            return {}
        return {TMP: str(path)}

    def added(self, env: Mapping[str, str], placement: Placement) -> dict[str, str]:
        """Return the worker's environment with its peers' addresses. Variables that its role sets stay unchanged."""
        role = next(role for role in self._spec.roles if role.name == placement.role)
        said = openpai_variables.variables(
            self._spec,
            placement,
            self._names,
            user=self._user,
            attempt=self.attempt,
            cwd=str(self._cwd_of(self.attempt, placement, env)),
        )
        said |= (
            openpai_variables.named_in(self._names, (*role.command, role.script, *role.env.values(), *self._beside))
            | self._file
        )
        said |= self._own_tmp(placement)
        if env.get(FILE_SYSTEM):
            said[FILE_SYSTEM] = env[FILE_SYSTEM]
        return {**env, **{name: value for name, value in said.items() if name not in role.env}}

    def ports(self, placement: Placement) -> tuple[int, ...]:
        """Return the ports that are reserved for this worker."""
        task = self._names.tasks.get((placement.role, placement.role_rank))
        own = self._spec_ports(placement.role)
        return tuple(port for label in own for port in task.ports.get(label, ())) if task is not None else ()

    def _spec_ports(self, name: str) -> Mapping[str, int]:
        return next(role.ports for role in self._spec.roles if role.name == name)


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())  # use the number: the user id has no name, as in many containers
