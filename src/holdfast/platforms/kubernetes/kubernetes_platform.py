"""The platform class for the processes of a job on Kubernetes: its owner and its agents."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.platforms.kubernetes.kubernetes_access import KubernetesAccess
from holdfast.platforms.kubernetes.kubernetes_launch import join_in_pod, over_pods
from holdfast.platforms.kubernetes.objects import object_names
from holdfast.platforms.kubernetes.objects.pod_context import in_owners_pod, over_words
from holdfast.platforms.kubernetes.owner.job_adoption import JobAlreadyEnded, adopt
from holdfast.platforms.platform import JobAlreadyOver, LaunchRequest, Platform
from holdfast.platforms.remote_jobs import typed_outside

if TYPE_CHECKING:
    from holdfast.clock import Clock
    from holdfast.launch.agent_launch import AgentJoin
    from holdfast.launch.multi_node import MultiNodeJob
    from holdfast.model.job_spec import JobSpec, PlatformJob
    from holdfast.platforms.job_watch import JobWatch
    from holdfast.reactor import Reactor
    from holdfast.record.job_directory import JobPlace


class KubernetesPlatform(KubernetesAccess, Platform):
    """Runs the processes of a job in pods.

    Kubernetes itself replaces the owner's pod, so an agent that has lost its owner requests nothing.
    """

    explains_signals = True
    key_from = "the job's Secret"
    #: How long an agent waits for a lost owner, in seconds. Kubernetes takes at least 5 minutes to replace the owner's
    #: pod on a lost node.
    owner_wait_s = 600.0

    def job(self, environment: Mapping[str, str]) -> PlatformJob | None:
        return None  # no id is recorded, because the cluster's own records already have the job's name

    def hosts_only(self, environment: Mapping[str, str]) -> bool:
        return object_names.JOB_NAME in environment and object_names.OWNER_ADDRESS not in environment

    def outside(self, command: str, job: str, environment: Mapping[str, str]) -> str:
        if not in_owners_pod(environment):
            return command
        where = f"--platform kubernetes -n {environment.get(object_names.NAMESPACE, 'default')}"
        return typed_outside(command, job=job, name=environment[object_names.JOB_NAME], where=where)

    def user(self, environment: Mapping[str, str]) -> str:
        # User names differ from image to image, so the job's name is used.
        return environment.get(object_names.JOB_NAME, "")

    def launch(self, request: LaunchRequest) -> MultiNodeJob | None:
        if not in_owners_pod(os.environ):
            return None
        return over_pods(request.options, request.settings, request.job_of, request.nodes)

    def agent_join(self) -> AgentJoin:
        return join_in_pod()

    def watch(
        self, spec: JobSpec, reactor: Reactor, say: Callable[[str], None], environment: Mapping[str, str]
    ) -> JobWatch | None:
        from holdfast.platforms.kubernetes.owner.kubernetes_watch import watch  # imported late: agents need no watch

        return watch(spec, reactor, say, environment)

    def exit_status(self, code: int) -> int:
        """Return one exit status for every final result. With this status the Kubernetes Job starts no other pod.

        The container's termination message has the real code.
        """
        return object_names.DO_NOT_RETRY

    def adopted(self, home: Path, clock: Clock, say: Callable[[str], None]) -> JobPlace | None:
        if not in_owners_pod(os.environ):
            return None
        try:
            return adopt(home, clock, say)
        except JobAlreadyEnded as over:
            raise JobAlreadyOver(*over_words(over.header)) from None
