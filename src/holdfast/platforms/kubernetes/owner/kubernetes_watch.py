"""The owner's watch over a Kubernetes job. It follows the pods of the job's nodes, and the owner's own pod."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from holdfast.model import events as ev
from holdfast.model.evidence import StopRequest, StopSource
from holdfast.model.phrases import Phrase
from holdfast.platforms.job_watch import JobWatch
from holdfast.platforms.kubernetes.objects import api_records
from holdfast.platforms.kubernetes.objects import object_names as known_names
from holdfast.platforms.kubernetes.objects.client_messages import Answered, ApiTrouble, Method, ObjectChange
from holdfast.platforms.kubernetes.objects.pod_context import ORDER, OWNER_TOKEN, plan_here, pod_of
from holdfast.platforms.kubernetes.objects.pod_failures import PodEndReason, describe, pod_end_reason
from holdfast.platforms.kubernetes.objects.saved_state import Header
from holdfast.platforms.kubernetes.owner.api_helper import ApiHelper
from holdfast.platforms.kubernetes.owner.decision_events import DecisionEvents
from holdfast.platforms.kubernetes.owner.job_pods import JobPods
from holdfast.platforms.kubernetes.owner.mesh_sidecars import end_sidecars
from holdfast.platforms.kubernetes.owner.node_places import (
    GangPatience,
    PodLost,
    PodPending,
    PodsImpossible,
    neighbourhood,
)
from holdfast.platforms.kubernetes.owner.node_tainting import NodeTainting
from holdfast.platforms.kubernetes.owner.state_mirror import StateMirror
from holdfast.platforms.kubernetes.owner.stop_requests import StopRequests
from holdfast.record.job_views import events

if TYPE_CHECKING:
    from holdfast.model.decisions import AttemptRecord, JobReport
    from holdfast.model.job_spec import JobSpec
    from holdfast.reactor import News, Reactor
    from holdfast.record.job_directory import JobPlace

#: Fraction of a pod's grace period that workers get for saving a checkpoint.
SAVE_FRACTION = 0.75
MOST_SAVE_S = 30.0
#: Time limit for the API server to explain a signal, in seconds.
ANSWER_S = 2.0
#: How long to wait for the end of the attempt before deleting a pod on a node that the job leaves, in seconds.
ATTEMPT_END_S = 5.0
#: In a pod under deletion an agent counts as silent after this many missed heartbeats and one more second.
MISSED_HEARTBEATS = 2
#: How long to wait before replacing pods if half of them fall silent at the same time, in seconds. The owner's own
#: connection may be the cause.
MASS_SILENCE_S = 30.0
#: Boot number in reports about agents whose pods are gone. It is higher than any agent's real boot number.
EVERY_BOOT = 1 << 52


def watch(
    spec: JobSpec, reactor: Reactor, say: Callable[[str], None], environment: Mapping[str, str]
) -> KubernetesWatch:
    """Return the watch over the job whose owner runs in this pod."""
    return KubernetesWatch(spec, ApiHelper(reactor, environment), say, environment)


class KubernetesWatch(JobWatch):
    """Watches the pods of one job for its owner."""

    def __init__(
        self, spec: JobSpec, asking: ApiHelper, say: Callable[[str], None], environment: Mapping[str, str]
    ) -> None:
        """`spec`: the job. `asking`: sends requests to the API server. `say`: prints a message of the owner.

        `environment`: environment variables of the owner's pod.
        """
        super().__init__(asking.reactor)
        self._spec = spec
        self._asking = asking
        self._say = say
        self._plan = plan_here(environment)
        self._pod = environment.get(known_names.POD, "")
        self._attempt = 0
        #: Nodes that have workers of the current attempt.
        self._seated: set[str] = set()
        #: Maps each silent node to the time at which it was lost.
        self._silent: dict[str, float] = {}
        self._heard_at: Callable[[str], float | None] = lambda node: None
        #: Maps each node to the time at which its agent reported a signal.
        self._signalled: dict[str, float] = {}
        #: Maps the pods that are deleted when the current attempt ends to the reasons.
        self._held: dict[str, str] = {}
        #: Number of unanswered requests that ask the API server why a signal came.
        self._questions = 0
        self._pods = JobPods(
            asking,
            self._plan,
            environment.get(ORDER, ""),
            say,
            self._told,
            self._placed,
            GangPatience(
                nodes_s=lambda: spec.nodes.replace_s if self._attempt else spec.nodes.join_s,
                silent_s=MISSED_HEARTBEATS * spec.timers.beat_s + 1.0,
                heard_at=self._spoke_at,
            ),
        )
        self._verdict = DecisionEvents(asking, self._plan.namespace, self._plan.name, say)
        self._wishes = StopRequests(asking, self._plan.namespace, self._plan.name, say, self._job_changed)
        self._tainting = NodeTainting(asking, self._plan.name, self._plan.namespace, say)
        #: Maps each Kubernetes node to its topology labels; empty while a request for them is pending.
        self._near: dict[str, tuple[str, ...]] = {}
        #: Whether the Job was deleted.
        self._deleted = False
        #: Whether this process must exit because another owner takes the job over.
        self._ending = False
        self._least = self._plan.least or self._plan.nodes
        #: Indices of the gang's nodes whose lost pods are not replaced any more.
        self._without: set[int] = set()
        self._token = environment.get(OWNER_TOKEN, "")
        #: Copies the job's events to the ConfigMap; None until the API server has sent the Job's uid.
        self._mirror: StateMirror | None = None

    # -------------------------------------------------------------------------- methods of the interface `JobWatch`

    @property
    def asking(self) -> bool:
        return self._questions > 0 or self._pods.unsure

    @property
    def holding(self) -> bool:
        return self._tainting.busy

    def begin(self, now: float, place: JobPlace, heard_at: Callable[[str], float | None]) -> News:
        self._heard_at = heard_at
        header = Header(
            of="",
            owner=self._token,
            pod=self._pod,
            job_id=place.job_id,
            name=self._spec.name,
            created=place.lock.supervisor.created,
            attempt=self._attempt,
        )

        def known(uid: str) -> None:
            self._mirror = StateMirror(
                self._asking, replace(header, of=uid), self._plan.namespace, self._plan.name, self._say, self._taken
            )
            self._mirror.begin(events(place.home, place.job_id))

        admitted = [
            event.node.name for _, event in events(place.home, place.job_id) if isinstance(event, ev.NodeJoined)
        ]
        self._pods.begin(known, admitted)
        self._wishes.begin()
        return None

    def noted(self, event: ev.Event, now: float) -> None:
        if self._mirror is not None:
            self._mirror.noted(event, now)

    def secured(self, event: ev.JournalSecured, now: float) -> News:
        return [event] if self._mirror is None else self._mirror.secured(event, now)

    @property
    def handed_over(self) -> bool:
        """Whether this pod ends while the job goes on. If so, the owner's next pod takes the job over."""
        return self._ending

    def joined(self, node: str, now: float) -> None:
        """Record that the owner has admitted a node's agent."""
        self._silent.pop(node, None)
        self._without.discard(self._pods.joined(pod_of(node), now))

    def labels(self, node: str) -> tuple[str, ...]:
        """Return the topology labels if all pods have the same shape.

        Otherwise ranks depend only on the pods' indices.
        """
        found = self._pods.find(pod_of(node)) if len(self._plan.shapes) == 1 else None
        return self._near.get(found.node, ()) if found is not None else ()

    def _placed(self, pod: api_records.Pod) -> None:
        """Read the topology labels of a pod's node, once for each node."""
        if pod.node in self._near:
            return
        # Since Kubernetes 1.35 a pod's own labels include its node's zone.
        self._near[pod.node] = neighbourhood(pod.labels)

        def seen(answer: Answered, now: float) -> None:
            # A Role cannot grant the right to read nodes. Without this right only the pod's own labels are known.
            if answer.ok:
                self._near[pod.node] = neighbourhood(api_records.node(answer.body).labels)

        self._asking.ask(Method.GET, f"/api/v1/nodes/{pod.node}", seen)

    def seated(self, nodes: Collection[str], attempt: int) -> None:
        """Record the nodes on which this attempt's workers run."""
        self._seated, self._attempt = {*nodes}, attempt
        if self._mirror is not None:
            self._mirror.at(attempt)

    def signalled(self, number: int, node: str, now: float) -> News:
        self._signalled[node] = now
        if node != os.uname().nodename:
            return None  # if the signal ends the pod of another node, the watch of pods reports that
        if number != signal.SIGTERM:
            return None
        self._questions += 1
        path = f"/apis/batch/v1/namespaces/{self._plan.namespace}/jobs/{self._plan.name}"
        self._asking.ask(Method.GET, path, self._job_is, limit_s=ANSWER_S, patience_s=ANSWER_S)
        return None

    def _spoke_at(self, node: str) -> float | None:
        return max((at for at in (self._heard_at(node), self._signalled.get(node)) if at is not None), default=None)

    def felled(self, since: float) -> None:
        """Do nothing: a kubelet signals only the first process of a container, so it cannot have killed workers."""

    def lost(self, node: str, attempt: int, now: float) -> News:
        name = pod_of(node)
        found = self._pods.find(name)
        if found is None or node in self._silent:
            return None
        self._silent[node] = now
        recent = sum(now - at < MASS_SILENCE_S for at in self._silent.values())
        if recent > 1 and recent * 2 > self._pods.living:
            self._reactor.at(now + MASS_SILENCE_S, lambda later: self._still_silent(node, attempt, later))
            return None
        return self._replace(node, attempt, now)

    def broken_off(self, attempt: int) -> None:
        """Do nothing: Kubernetes does not suspend running pods."""

    def requeue(self, reason: str, without: Sequence[str], done: Callable[[str, float], News]) -> None:
        why = "Kubernetes gives a job new pods while it runs, and starts no other run of it"
        self._reactor.at(self._reactor.now(), lambda now: done(why, now))

    def hold(self, node: str, reason: str, attempt: int) -> None:
        """Stop using a Kubernetes node for this job.

        If the user allows it, taint the node, so that no job uses it.
        """
        name = pod_of(node)
        found = self._pods.find(name)
        if self._plan.may_taint and found is not None:
            self._tainting.hold(found.node, reason, attempt, node)
        self._leave(name, reason)

    def _leave(self, name: str, reason: str) -> None:
        if not name or name in self._held:
            return
        self._held[name] = reason
        self._reactor.at(self._reactor.now() + ATTEMPT_END_S, self._release)

    def avoid(self, names: Sequence[str]) -> None:
        for name in names:
            # A bad device also leads to a new pod, because the old pod would have too few devices.
            self._leave(pod_of(name.partition("/")[0]), f"the gang leaves {name} out")

    def recorded(self, record: AttemptRecord) -> None:
        self._verdict.recorded(record)
        if self._held:
            self._reactor.at(self._reactor.now(), self._release)

    def finished(self, report: JobReport) -> None:
        self._verdict.finished(report)
        self._pods.finish()
        if self._mirror is not None:
            self._mirror.finished(report)

    @property
    def writing(self) -> bool:
        mirroring = self._mirror is not None and self._mirror.writing
        return self._pods.deleting > 0 or self._verdict.writing or mirroring

    def close(self) -> None:
        self._asking.close()
        if self._pods.over:  # the job has ended, and this pod ends with it
            end_sidecars()

    # --------------------------------------------------------------------------------- handling reports about pods

    def _told(self, said: PodLost | PodsImpossible | PodPending, now: float) -> News:
        """Turn a report about a pod into events for the owner."""
        if isinstance(said, PodPending):
            if self._mirror is not None:
                self._mirror.waits(self._pods.not_made)
            # Before the first attempt a pending pod is evidence: it explains why the gang does not start.
            return [self._evidence(said.pod, said.words, "")] if said.words and not self._attempt else None
        if isinstance(said, PodsImpossible):
            fresh = said.index not in self._without
            self._without.add(said.index)
            if said.index >= 0 and len(self._without) <= self._plan.nodes + self._plan.spares - self._least:
                if fresh:
                    self._say(f"{said.words}; the job goes on without it\n  try: {said.command}")
                return None
            request = StopRequest(
                reason=said.words,
                solution=f"Try: {said.command}",
                source=StopSource.PLATFORM,
                phrase=said.phrase,
                at=now,
            )
            return [ev.StopRequested(request=request)]
        words = f"pod {said.pod.name}: {said.why.words}"
        news: list[Any] = []
        if said.node in self._seated:
            grace_s = said.pod.delete_grace_s or 0.0
            ends = said.over or not grace_s
            request = StopRequest(
                reason=words,
                solution=f"Try: {describe(said.pod)}",
                source=StopSource.PLATFORM,
                phrase=said.why.phrase,
                at=now,
                final=False,
                save_s=0.0 if ends else min(SAVE_FRACTION * grace_s, MOST_SAVE_S),
                within_s=None if ends else grace_s,
            )
            news.append(ev.StopRequested(request=request))
            news.append(self._evidence(said.pod, said.why.words, said.node))
        # The node leaves at once, although its pod may take time to end, so that no further attempt starts on it.
        news.append(ev.NodeLeft(node=said.node, boot=EVERY_BOOT, reason=words, fenced=said.over))
        return news

    def _evidence(self, pod: api_records.Pod, words: str, node: str) -> ev.PlatformSaid:
        return ev.PlatformSaid(
            attempt=self._attempt, subject=f"pod {pod.name}", words=words, command=describe(pod), node=node
        )

    # -------------------------------------------------------------------- replacing the pods of lost agents

    def _still_silent(self, node: str, attempt: int, now: float) -> News:
        return self._replace(node, attempt, now) if node in self._silent else None

    def _replace(self, node: str, attempt: int, now: float) -> News:
        """Replace the pod of an agent whose lease has expired.

        Also read the node's state from Kubernetes as evidence.
        """
        name = pod_of(node)
        found = self._pods.find(name)
        if found is None:
            return None
        why = pod_end_reason(found)
        if why is None or not why.certain:
            why = PodEndReason(phrase=Phrase.NODE_FAILED, words=f"its agent on {found.node} does not answer")
        news = self._pods.replace(name, why, now)
        if found.node:

            def seen(answer: Answered, then: float) -> News:
                return self._node_is(found, node, attempt, answer)

            self._asking.ask(Method.GET, f"/api/v1/nodes/{found.node}", seen, limit_s=ANSWER_S)
        return news

    def _node_is(self, pod: api_records.Pod, node: str, attempt: int, answer: Answered) -> News:
        command = f"kubectl describe node {pod.node}"
        if answer.trouble is ApiTrouble.GONE:
            words = f"Kubernetes has no node {pod.node} any more"
        elif answer.ok:
            record = api_records.node(answer.body)
            ready = record.ready
            state = "is ready" if ready is None or ready.true else f"is not ready ({ready.reason}: {ready.message})"
            taints = ", ".join(record.taints)
            words = f"node {pod.node} {state}{f', tainted: {taints}' if taints else ''}"
        else:
            return None  # the service account has no right to read nodes
        return [ev.PlatformSaid(attempt=attempt, subject=f"node {pod.node}", words=words, command=command, node=node)]

    def _release(self, now: float) -> News:
        held, self._held = self._held, {}
        news: list[Any] = []
        for name, reason in held.items():
            found = self._pods.find(name)
            if found is not None:
                self._say(f"node {found.node} gets no more pods of this job: {reason}")
                why = PodEndReason(phrase=Phrase.NODE_FAILED, words=f"the job does without its node: {reason}")
                news += self._pods.replace(name, why, now, avoid=True) or ()
        return news

    # ---------------------------------------------------------------------------------- when the owner's own pod ends

    def _taken(self, by: str, now: float) -> News:
        """Exit, because another owner has taken over the job's state."""
        self._say(f"another owner has taken the job over ({by}): this one ends")
        self._ending = True
        return None

    def _job_is(self, answer: Answered, now: float) -> News:
        """After a SIGTERM to the owner's pod, find out whether the whole job ends or only this pod."""
        self._questions -= 1
        meta = (answer.body.get("metadata") or {}) if isinstance(answer.body, dict) else {}
        # The owner's account, token and Role are deleted with the Job.
        gone = answer.trouble in (ApiTrouble.GONE, ApiTrouble.REFUSED) or meta.get("deletionTimestamp")
        if gone or self._deleted:
            return self._job_deleted(now)
        self._say("the owner's pod ends; the job goes on, and the next pod of the owner takes it over")
        self._ending = True
        return None

    def _job_changed(self, job: Mapping[str, Any], change: ObjectChange | None, now: float) -> News:
        """Handle the Job's state whenever it changes."""
        if change is ObjectChange.DELETED or (job.get("metadata") or {}).get("deletionTimestamp"):
            return self._job_deleted(now)
        self._verdict.job_is(job)
        return None

    def _job_deleted(self, now: float) -> News:
        """Stop the workers, once, because the Job was deleted. Kubernetes deletes all that belongs to it."""
        if self._deleted:
            return None
        self._deleted = True
        if self._mirror is not None:
            self._mirror.give_up()
        request = StopRequest(
            reason=f"the Kubernetes job {self._plan.name} was deleted",
            solution="Nothing to repair: submit the job again when you want it to go on.",
            source=StopSource.PLATFORM,
            phrase=Phrase.STOPPED_BY_OPERATOR,
            at=now,
            signal=int(signal.SIGTERM),
        )
        return [ev.StopRequested(request=request)]
