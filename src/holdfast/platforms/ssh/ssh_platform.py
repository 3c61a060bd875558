"""ssh as a platform: `--hosts` and `--hostfile` name the machines. It has no job ids and watches no job."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.errors import BadUsage
from holdfast.launch.multi_node import MultiNodeJob, readable_again
from holdfast.launch.torchrun_options import named
from holdfast.model.job_spec import PlatformJob
from holdfast.platforms.platform import LaunchRequest, Platform
from holdfast.platforms.ssh.ssh_command import environment_there
from holdfast.platforms.ssh.ssh_launch import listed_hosts, over_hosts


class SshPlatform(Platform):
    """Starts a job's agents over ssh."""

    name = "ssh"
    title = "ssh"
    key_from = "ssh, on standard input"

    def job(self, environment: Mapping[str, str]) -> PlatformJob | None:
        return None

    def launch(self, request: LaunchRequest) -> MultiNodeJob | None:
        options, settings = request.options, request.settings
        if options.standalone:
            which = "hosts" if settings.value("hosts") else "hostfile"
            raise BadUsage(
                f"{named(options, 'standalone')} means one machine, and {settings.origin(which)} names hosts: "
                "expected one of the two",
                hint="holdfast run --hosts A,B train.py",
            )
        readable_again(options)
        return over_hosts(
            options,
            settings,
            request.job_of(True),
            listed_hosts(settings),
            request.nodes,
            look=request.look,
            guard_fd=request.guard_fd,
        )

    def agent_environment(self, sent: Mapping[str, str], there: Mapping[str, str]) -> dict[str, str]:
        return environment_there(sent, there)
