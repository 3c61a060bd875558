"""The options of one `holdfast run` as they were typed: texts and flags that nothing has judged so far."""

from __future__ import annotations

import msgspec

from holdfast.settings.settings_table import SETTINGS

#: torchrun's options that have no meaning here, by their names in `RunOptions`.
IGNORED = ("monitor_interval", "start_method")
#: torchrun's options that have no meaning on one machine.
OF_MANY = ("rdzv_backend", "rdzv_conf", "standalone")
#: torchrun's options with one true value here: any other value is refused.
JUDGED = (
    "logs_specs",
    "event_log_handler",
    "numa_binding",
    "signals_to_handle",
    "duplicate_stdout_filters",
    "duplicate_stderr_filters",
)


class RunOptions(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What was typed after `holdfast run`. A field that nobody has set is None, False or ().

    The first fields are torchrun's options, which `holdfast.cli._run_options.TORCHRUN` describes. A field without a
    comment is a setting, which the table of settings describes: `settings` passes them on to be resolved. Slurm and
    torchrun's variables set fields that nobody typed, and `origins` names where such a value came from.
    """

    #: The script and its arguments; () with `--job` or `--command-from`.
    words: tuple[str, ...] = ()
    #: Where a value came from that was not typed, by field: `PET_NNODES=4`.
    origins: dict[str, str] = {}

    #: Workers of this node: a number, or a word such as `auto`.
    nproc_per_node: str | None = None
    #: How many nodes: `4`, or `MIN:MAX`.
    nnodes: str | None = None
    #: This node's place among them, from 0.
    node_rank: str | None = None
    #: HOST:PORT of the owner, typed on every node; on one machine its port is MASTER_PORT.
    rdzv_endpoint: str | None = None
    #: The job's identity.
    rdzv_id: str | None = None
    #: `static` or `c10d`: what ranks the nodes.
    rdzv_backend: str | None = None
    #: KEY=VALUE,KEY=VALUE; `is_host`, `join_timeout` and `last_call_timeout` have a meaning.
    rdzv_conf: str | None = None
    #: The job has one machine.
    standalone: bool = False
    #: The role's name of the workers of a script.
    role: str | None = None
    #: The host and the port of the endpoint; on one machine MASTER_ADDR and MASTER_PORT.
    master_addr: str | None = None
    master_port: str | None = None
    #: The address at which other nodes reach this one.
    local_addr: str | None = None
    #: LOCAL_RANK is 0 in every worker, which sees one device.
    virtual_local_rank: bool = False
    #: Local ranks whose output is shown, separated by commas.
    local_ranks_filter: str | None = None
    #: The script is a module.
    module: bool = False
    #: The script is any command.
    no_python: bool = False
    #: The script is a Python file; wins over `module` and `no_python`.
    run_path: bool = False
    #: Path of a job file, instead of a script.
    job: str | None = None
    #: The variable with the command, instead of a script.
    command_from: str | None = None

    # Accepted for torchrun's sake.
    monitor_interval: str | None = None
    start_method: str | None = None
    logs_specs: str | None = None
    event_log_handler: str | None = None
    numa_binding: str | None = None
    signals_to_handle: str | None = None
    duplicate_stdout_filters: str | None = None
    duplicate_stderr_filters: str | None = None

    # Settings, in the order of their table.
    name: str | None = None
    report: str | None = None
    metrics_file: str | None = None
    on_event: str | None = None
    on_end: str | None = None
    notify: str | None = None
    summary: str | None = None
    traces: bool | None = None
    notice_timeout: str | None = None
    json: bool | None = None
    verbose: bool | None = None
    utc: bool | None = None
    events: bool | None = None
    termination_log: str | None = None
    exit_status: str | None = None
    outer: str | None = None
    container_status: str | None = None
    max_restarts: str | None = None
    same_failure: str | None = None
    grace: str | None = None
    fetch_timeout: str | None = None
    prepare_timeout: str | None = None
    time_limit: str | None = None
    hang_timeout: str | None = None
    hang_warning: str | None = None
    bind: bool | None = None
    job_comment: bool | None = None
    log_size: str | None = None
    log_kept: str | None = None
    log_attempts: str | None = None
    disk_limit: str | None = None
    checks: str | None = None
    no_checks: bool | None = None
    check_timeout: str | None = None
    plugin: tuple[str, ...] = ()
    fault_codes: str | None = None
    fault_rules: str | None = None
    kernel_log: str | None = None
    fault_socket: str | None = None
    fault_file: str | None = None
    ascend_events: str | None = None
    reset_command: str | None = None
    reset_group: str | None = None
    exits: str | None = None
    preload: str | None = None
    warm: bool | None = None
    pai: bool | None = None
    standby: bool | None = None
    warm_timeout: str | None = None
    tee: str | None = None
    redirects: str | None = None
    python: str | None = None
    stdin: str | None = None
    log_dir: str | None = None
    hosts: str | None = None
    hostfile: str | None = None
    ssh: str | None = None
    spares: str | None = None
    join_timeout: str | None = None
    last_call: str | None = None
    replace_wait: str | None = None
    grow: bool | None = None
    requeue_at_limit: bool | None = None
    job_key: str | None = None
    owner_wait: str | None = None
    port_range: str | None = None
    keep_jobs: str | None = None
    keep_days: str | None = None
    keep_size: str | None = None

    def text(self, name: str) -> str | None:
        """The text of an option that is chosen by its name; None where it is not set, or no text."""
        value = getattr(self, name)
        return value if isinstance(value, str) else None

    def is_set(self, name: str) -> bool:
        """Whether an option that is chosen by its name has a value: typed, or of a variable."""
        return getattr(self, name) not in (None, False, ())

    def settings(self) -> dict[str, str | bool | tuple[str, ...] | None]:
        """The typed settings by their names, for `resolve`."""
        return {setting.name: getattr(self, setting.param) for setting in SETTINGS}
