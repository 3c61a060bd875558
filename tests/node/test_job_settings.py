"""What a node makes of the settings that its owner has sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.errors import BadUsage
from holdfast.launch.agent_launch import options_there, order_for_agents
from holdfast.launch.launch_spec import Interpreter, LaunchSpec, NodesOrder
from holdfast.launch.worker_output_options import parse_std
from holdfast.model.job_spec import JobSetting, JobSpec, NodePlan, Resources, Role
from holdfast.node.agent.local_node import launch_here, node_here, without_effect
from holdfast.node.job_settings import with_job_settings
from holdfast.settings.resolved_settings import Settings, resolve
from holdfast.settings.run_options import RunOptions
from holdfast.settings.settings_table import BY_NAME, SETTINGS, Scope
from holdfast.settings.value_kinds import ValueKind
from holdfast.wire.node_messages import Welcome

SPEC = JobSpec(name="j", roles=(Role(name="worker", count=1, command=("x",)),), nodes=NodePlan(least=2, most=2))
ORDER = NodesOrder(host="n0", port=1, key=b"k" * 32, key_from="k", job="j", slots=1, local_addr="10.0.0.1")


def settings_at(place: Path, text: str, **options: Any) -> Settings:
    """Those of a machine with this configuration file."""
    place.mkdir(mode=0o700, exist_ok=True)
    (place / "config.yaml").write_text(text)
    return resolve(RunOptions(**options).settings(), {}, place, system_file=place / "none")


def launch_at(place: Path, text: str, order: NodesOrder = ORDER, **options: Any) -> LaunchSpec:
    """The launch of a run on that machine."""
    settings = settings_at(place, text, **options)
    launch = LaunchSpec(
        render=str,  # type: ignore[arg-type]  # no report is shown
        spec=SPEC,
        home=place,
        cwd=place,
        environment={},
        redirects=parse_std("0"),
        tee=parse_std("0"),
        nodes=order,
    )
    return with_job_settings(launch, settings)


def welcome_of(owner: LaunchSpec) -> Welcome:
    return Welcome(job_id="i", node="b", spec=owner.spec, term=1, owner="a", settings=owner.settings.of_job())


def test_all_that_the_owner_has_resolved_counts_on_a_node_with_another_file(tmp_path: Path) -> None:
    codes = tmp_path / "codes.yaml"
    codes.write_text("codes: {}\n")
    owner = launch_at(
        tmp_path / "a",
        f"log-size: 1M\nlog-kept: 2\nlog-attempts: 3\ndisk-limit: 90%\nfault-codes: {codes}\nfault-rules: {codes}\n"
        "checks: disk\ncheck-timeout: 7\nwarm: true\npreload: json\nwarm-timeout: 9\nport-range: 4000-4009\n"
        "owner-wait: 5\n",
    )
    other = "log-size: 9M\nno-checks: true\ndisk-limit: 10%\nport-range: 5000-5009\nowner-wait: 77\n"
    here = launch_here(launch_at(tmp_path / "b", other), ORDER, welcome_of(owner))
    assert here.rotation == owner.rotation is not None
    assert (here.kept_attempts, here.disk_limit, here.warm) == (3, owner.disk_limit, owner.warm)
    assert here.checks == owner.checks is not None
    assert (here.faults.codes, here.faults.rules) == (str(codes), str(codes))
    assert here.nodes is not None
    assert (here.nodes.port_range, here.nodes.owner_wait_s) == ((4000, 4009), 5.0)


def test_what_the_owner_has_not_set_has_its_default_on_a_node_that_sets_it(tmp_path: Path) -> None:
    owner = launch_at(tmp_path / "a", "")
    node = launch_at(tmp_path / "b", "log-size: 9M\nlog-attempts: 1\nchecks: disk\nwarm: true\nowner-wait: 7\n")
    here = launch_here(node, ORDER, welcome_of(owner))
    assert (here.rotation, here.kept_attempts, here.warm) == (None, None, None)
    assert here.checks == owner.checks
    assert here.nodes is not None
    assert here.nodes.owner_wait_s == 60.0


def test_a_node_keeps_what_is_its_own(tmp_path: Path) -> None:
    owner = launch_at(tmp_path / "a", "kernel-log: /a\nreset-group: 4\nlog-size: 1M\n")
    settings = launch_here(launch_at(tmp_path / "b", "kernel-log: /b\n"), ORDER, welcome_of(owner)).settings
    assert (settings.text("kernel-log"), settings.count("reset-group"), settings.text("log-size")) == ("/b", 1, "1M")


def test_an_owner_with_the_same_settings_changes_nothing(tmp_path: Path) -> None:
    owner, node = (launch_at(tmp_path / name, "", log_size="1M") for name in ("a", "b"))
    here = launch_here(node, ORDER, welcome_of(owner))
    assert here.checks is node.checks
    assert here.rotation is node.rotation


def test_a_pod_waits_longer_for_its_owner_where_nobody_has_said_how_long(tmp_path: Path) -> None:
    order = replace(ORDER, usual_owner_wait_s=600.0)
    waits = []
    for text in ("", "owner-wait: 5\n"):
        owner = launch_at(tmp_path / "a", text)
        here = launch_here(launch_at(tmp_path / "b", "owner-wait: 9\n", order), order, welcome_of(owner))
        assert here.nodes is not None
        waits.append(here.nodes.owner_wait_s)
    assert waits == [600.0, 5.0]


def test_a_warm_start_that_the_owner_asks_for_finds_the_python_of_a_nodes_image_once(tmp_path: Path) -> None:
    owner = welcome_of(launch_at(tmp_path / "a", "warm: true\n"))
    cold = replace(launch_at(tmp_path / "b", ""), image_python=lambda: Interpreter("/image/python", own=False))
    here = launch_here(cold, ORDER, owner)
    assert (here.python, here.warm is not None) == ("/image/python", True)
    assert cold.python != "/image/python"
    assert with_job_settings(here, here.settings).environment == here.environment != cold.environment


def test_a_file_that_is_missing_on_the_node_is_named(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text("codes: {}\n")
    owner = launch_at(tmp_path / "a", f"fault-rules: {rules}\n")
    rules.unlink()
    with pytest.raises(BadUsage, match=r"rules\.yaml: no such file"):
        launch_here(launch_at(tmp_path / "b", ""), ORDER, welcome_of(owner))


def test_typed_options_that_the_owner_overrules_are_named_and_those_of_a_file_are_not(tmp_path: Path) -> None:
    owner = welcome_of(launch_at(tmp_path / "a", "log-size: 1M\ngrace: 5\n"))
    assert without_effect(launch_at(tmp_path / "b", "log-kept: 9\n", grace="5"), owner) == ""
    one = without_effect(launch_at(tmp_path / "b", "", log_size="2M", kernel_log="/dev/null"), owner)
    assert one == "--log-size has no effect on this node: it is a setting of the job, and the owner on a decides"


def test_a_node_tells_its_cpus_also_where_its_own_file_binds_nothing(tmp_path: Path) -> None:
    role = Role(name="worker", count=1, command=("x",), resources=Resources(cpus=1))
    unbound = replace(launch_at(tmp_path / "b", ""), spec=replace(SPEC, roles=(role,), binds=False))
    assert node_here(unbound, ORDER).cpus


def test_a_starter_sends_no_setting_of_the_run_that_was_typed() -> None:
    typed: Any = RunOptions(words=("t.py",), json=True, warm=False, local_addr="10.0.0.1")
    texts = {s.param for s in SETTINGS if s.kind not in (ValueKind.FLAG, ValueKind.FILES)}
    for param in texts:
        setattr(typed, param, "1")
    sent = order_for_agents("ssh", typed, "n", NodePlan(), b"k", environment={}).options
    unset = RunOptions()
    kept = {s.name for s in SETTINGS if getattr(sent, s.param) != getattr(unset, s.param)}
    assert kept == {s.name for s in SETTINGS if s.param in (*texts, "json", "warm") and s.scope is not Scope.RUN} - {
        "name"
    }
    assert BY_NAME["notify"].scope is Scope.RUN, "its addresses are secret"
    assert not any(s.secret and s.scope is not Scope.RUN for s in SETTINGS)
    there = options_there(order_for_agents("ssh", typed, "n", NodePlan(), b"k", environment={}, slots=4))
    assert (there.name, there.stdin, there.nproc_per_node) == ("n", "none", "4")


def test_only_what_was_set_is_sent(tmp_path: Path) -> None:
    settings = settings_at(tmp_path / "a", "log-kept: 4\nkernel-log: /k\n", log_size="1M", report="r.json")
    assert settings.of_job() == (
        JobSetting(name="log-size", value="1M", source=4, origin="--log-size"),
        JobSetting(name="log-kept", value=4, source=2, origin=str(tmp_path / "a" / "config.yaml")),
    )
