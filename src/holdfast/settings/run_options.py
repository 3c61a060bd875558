"""The options of one `holdfast run` as typed: texts and flags that are not validated yet."""

from __future__ import annotations

import msgspec

from holdfast.settings.settings_table import SETTINGS

#: torchrun's options that holdfast ignores, as names of fields in `RunOptions`.
IGNORED = ("monitor_interval", "start_method")
#: torchrun's options that have no effect in a job on one machine.
MULTI_NODE_ONLY = ("rdzv_backend", "rdzv_conf", "standalone")
#: torchrun's options that holdfast accepts only with the value that it implements.
JUDGED = (
    "logs_specs",
    "event_log_handler",
    "numa_binding",
    "signals_to_handle",
    "duplicate_stdout_filters",
    "duplicate_stderr_filters",
)


class RunOptions(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The options typed after `holdfast run`. A field that is not set is None, False or ().

    The first fields are torchrun's options, which `cli.options.run_option_table.TORCHRUN` describes. A field without
    a comment is a setting, which the table of settings describes. `settings` returns all of these for `resolve`.
    Slurm's and torchrun's variables may set fields that the user has not typed. Then `origins` names the variable.
    """

    #: The script and its arguments; empty with `--job` or `--command-from`.
    words: tuple[str, ...] = ()
    #: Maps the name of a field to the source of its value, if the value was not typed: `PET_NNODES=4`.
    origins: dict[str, str] = {}

    #: Number of workers on this node, or a word such as `auto`.
    nproc_per_node: str | None = None
    #: Number of nodes: `4`, or `MIN:MAX`.
    nnodes: str | None = None
    #: This node's rank, from 0.
    node_rank: str | None = None
    #: HOST:PORT of the owner, typed on every node. On one machine the port is used as MASTER_PORT.
    rdzv_endpoint: str | None = None
    #: Identity of the job, the same on all of its nodes.
    rdzv_id: str | None = None
    #: How nodes get their ranks: `static` or `c10d`.
    rdzv_backend: str | None = None
    #: Options as KEY=VALUE,KEY=VALUE. holdfast uses `is_host`, `join_timeout` and `last_call_timeout`.
    rdzv_conf: str | None = None
    #: Whether the job runs on one machine.
    standalone: bool = False
    #: Name of the role of the script's workers.
    role: str | None = None
    #: Host of the endpoint; `master_port` is its port. On one machine they are used as MASTER_ADDR and MASTER_PORT.
    master_addr: str | None = None
    master_port: str | None = None
    #: Address at which other nodes reach this node.
    local_addr: str | None = None
    #: Whether every worker sees only its own device and has the LOCAL_RANK 0.
    virtual_local_rank: bool = False
    #: Local ranks whose output is shown, separated by commas.
    local_ranks_filter: str | None = None
    #: Template for the prefix of each line, with ${role_name}, ${rank} and ${local_rank}.
    log_line_prefix_template: str | None = None
    #: Whether the script is the name of a Python module.
    module: bool = False
    #: Whether the script is a command that runs without Python.
    no_python: bool = False
    #: Whether the script is a Python file. This overrides `module` and `no_python`.
    run_path: bool = False
    #: Path of a job file, which replaces the script.
    job: str | None = None
    #: Name of the variable that contains the command, which replaces the script.
    command_from: str | None = None

    # The following options are accepted only for compatibility with torchrun.
    monitor_interval: str | None = None
    start_method: str | None = None
    logs_specs: str | None = None
    event_log_handler: str | None = None
    numa_binding: str | None = None
    signals_to_handle: str | None = None
    duplicate_stdout_filters: str | None = None
    duplicate_stderr_filters: str | None = None

    # The following fields are settings, in the order of the table of settings.
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
    leftover_wait: str | None = None
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
    fold: bool | None = None
    python: str | None = None
    image_runtime: str | None = None
    accelerate_config: str | None = None
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
        """Return the text of the option with this name. Return None if the option is not set or is no text."""
        value = getattr(self, name)
        return value if isinstance(value, str) else None

    def is_set(self, name: str) -> bool:
        """Whether the option with this name has a value, typed or from a variable."""
        return getattr(self, name) not in (None, False, ())

    def settings(self) -> dict[str, str | bool | tuple[str, ...] | None]:
        """Return the values of all settings by setting name, for `resolve`."""
        return {setting.name: getattr(self, setting.param) for setting in SETTINGS}
