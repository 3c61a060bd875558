"""Imports stand at the top of a file, but for the doors: each enters a part that few runs need."""

from __future__ import annotations

import ast

from holdfast_testing.house import source_files

#: File → the modules that it imports inside functions, and why not at its top.
DOORS = {
    "act/rendezvous_ports.py": ("act.peer_environment", "few jobs have roles that look for each other"),
    "act/warm/inside/nursery_main.py": ("act.warm.inside.import_scan", "it runs in the user's interpreter"),
    "act/worker_config.py": ("act.command_expansion", "few commands have names of OpenPAI"),
    "decide/draining.py": ("explain.funnel", "a job that succeeds needs no explanation"),
    "explain/__init__.py": (
        "explain.funnel explain.node_reader",
        "a job that succeeds needs no explanation",
    ),
    "launch/typed_job.py": ("launch.described_job", "few jobs have a job file"),
    "launch/worker_program.py": (
        "launch.command_mistakes",
        "only a script that is not there is looked up among other tools' files and words",
    ),
    "main/job_preparation.py": ("platforms.job_takeover", "a job's first run takes nothing over"),
    "main/node_guard.py": ("owner.nodes.owner_process", "one node of a job has the owner"),
    "main/platform_choice.py": ("launch.multi_node", "few jobs have several nodes"),
    "main/run_command.py": (
        "launch.name_validation launch.nested_launchers launch.notice_plan wire.addresses",
        "what only several nodes, another tool's command, a shell's, notices or a job file need",
    ),
    "main/run_guard.py": ("main.lost_jobs", "the guard stays small while the job runs"),
    "main/single_machine_run.py": ("node.report_writer", "a report is written when an attempt has failed"),
    "node/explain_files.py": ("node.compressed_logs", "few logs are compressed"),
    "node/named_logs.py": ("node.archived_logs", "few logs are in an archive"),
    "node/devices/excluded_devices.py": ("node.devices.fault_log", "few machines have faults"),
    "observe/output_pump.py": ("observe.folded_output", "few workers print a traceback or a progress bar"),
    "owner/idle_reporter.py": ("owner.idle_judge", "it loads the part that explains hangs"),
    "owner/job_records.py": ("platforms.job_takeover", "a job's first run takes nothing over"),
    "owner/node_queries.py": (
        "decide.queries.answer_collection decide.queries.hang_detection",
        "only for several nodes, or a time-out",
    ),
    "owner/owner_side.py": ("owner.job_outputs", "few jobs have event lines, notices or metrics"),
    "platforms/kubernetes/kubernetes_access.py": (
        "platforms.kubernetes.submit.kubernetes_submission",
        "only `submit` needs it",
    ),
    "platforms/kubernetes/kubernetes_platform.py": ("platforms.kubernetes.owner.kubernetes_watch", "agents need none"),
    "platforms/kubernetes/remote/kubernetes_jobs.py": (
        "platforms.kubernetes.remote.cluster_logs",
        "it needs the HTTP client and asyncio",
    ),
    "platforms/local/local_access.py": (
        "platforms.local.local_queue platforms.local.local_submission",
        "only `submit` and commands about waiting jobs need them",
    ),
    "platforms/local/local_submission.py": (
        "explain.causes.lost_owner",
        "only an owner that died has left no report",
    ),
    "platforms/slurm/interface/slurm_access.py": ("platforms.slurm.submit.slurm_submit", "only `submit` needs it"),
    "report/brief_report.py": ("catalogue.exit_rows", "a job that succeeds needs no catalogue"),
    "web/web_command.py": ("web.server_process", "it needs optional packages"),
}
#: Files that load modules by name. The tables of `node` are attributes that load their module when they are first used.
BY_NAME = {
    "__init__.py": "the public functions, so that `import holdfast` in a worker stays light",
    "act/store/store_server.py": "torch",
    "act/warm/entry_point/sitecustomize.py": "the user's own sitecustomize",
    "act/warm/inside/nursery_main.py": "the modules of the user's script, before it runs",
    "bundle/entry.py": "a command of a runtime's tree",
    "check_registry.py": "a plugin's check",
    "main/node_guard.py": "the guard's parts, once it has forked",
    "node/compressed_logs.py": "a library for zstd",
    "node/devices/__init__.py": "few machines have device faults",
    "node/devices/device_faults.py": "the parts that the policy needs, one at a turn",
    "node/explain_warmup.py": "the explaining code, one part at a turn while workers run",
    "node/prechecks/__init__.py": "a run with --no-checks needs none",
    "node/rare_parts.py": "stores, warm starts, logs of components: what few runs need",
    "node/sidecars/__init__.py": "few jobs have hooks and daemons",
    "observe/devices/fault_sources.py": "a plugin's source",
    "platforms/platform_registry.py": "a package's platform",
}


def test_no_import_stands_inside_a_function_but_the_doors() -> None:
    found: dict[str, set[str]] = {}
    files = source_files()
    modules = {file.module for file in files}
    for file in files:
        for name in file.imports(lazy=True):
            if file.room != "cli":
                module = name if name in modules else name.rpartition(".")[0]
                found.setdefault(str(file.place), set()).add(module.removeprefix("holdfast."))
    assert found == {file: set(listed.split()) for file, (listed, _) in DOORS.items()}


def test_modules_are_loaded_by_name_in_few_files() -> None:
    found = {
        str(file.place)
        for file in source_files()
        for node in ast.walk(file.tree)
        if file.room != "cli" and isinstance(node, ast.Call)
        if ast.unparse(node.func) in ("importlib.import_module", "import_module", "__import__")
    }
    assert found == set(BY_NAME)
