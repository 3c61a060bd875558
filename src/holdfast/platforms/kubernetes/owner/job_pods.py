"""Create, watch and replace the pods of a job's nodes. Each node has one pod, and a lost pod is replaced.

Workers restart inside their pod. A pod is lost if Kubernetes ends it, if it exits by itself, or if the gang has lost
its agent. holdfast's own lease decides when a node is lost, so the job does not wait for a pod that hangs in
Terminating. The replacement has a new name. The gang fences processes of the old pod that may still run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.catalogue.exit_rows import load
from holdfast.model import events as ev
from holdfast.model.exit_report import Rerun
from holdfast.model.phrases import Phrase
from holdfast.platforms.kubernetes.objects import api_records, object_names, pod_failures
from holdfast.platforms.kubernetes.objects.agent_pod import END_S, OwnersJob, pod, rather_elsewhere
from holdfast.platforms.kubernetes.objects.client_messages import (
    Answered,
    ApiTrouble,
    Listed,
    Method,
    ObjectChange,
    Unseen,
)
from holdfast.platforms.kubernetes.objects.pod_context import ORDER, pod_of
from holdfast.platforms.kubernetes.objects.pod_failures import PodEndReason, PodWaitReason, StartOutlook
from holdfast.platforms.kubernetes.objects.pod_plan import PodPlan
from holdfast.platforms.kubernetes.owner.api_helper import ApiHelper
from holdfast.platforms.kubernetes.owner.deleted_pods import SOON_S, DeletedPods
from holdfast.platforms.kubernetes.owner.node_places import (
    GangPatience,
    NodePlace,
    PodLost,
    PodPending,
    PodsImpossible,
    Told,
    generation_of,
)

if TYPE_CHECKING:
    from holdfast.platforms.kubernetes.objects.client_messages import Changed
    from holdfast.reactor import News

#: Pauses before the successive replacements of a node's failed pods, in seconds. After the last pause the node gets no
#: more pods.
PAUSES_S = (0.0, 2.0, 5.0, 10.0, 20.0, 40.0)
#: A pod whose agent was admitted and that lives this many seconds resets the node's count of failures.
HEALTHY_S = 60.0
#: How long a failing start step that the kubelet retries (a pull, a missing ConfigMap) is tolerated, in seconds.
FAILING_START_S = 150.0
#: How long to wait before the pod of a lost agent is deleted from the API server by force, in seconds.
FORCE_S = 15.0
#: How long after a pod's end no lack of room is reported, in seconds. The scheduler needs this time to try another pod.
RETRY_S = 3.0
#: Minimum time between two messages about a pod that does not start, in seconds.
MESSAGE_PAUSE_S = 60.0
PATIENCE_S = 600.0
#: How long before the gang's time limit a missing pod ends the job, in seconds. The report then has the pod's reason,
#: which the gang does not know.
BEFORE_GANG_LIMIT_S = 1.0
#: How many Kubernetes events are kept for each pod.
MOST_EVENTS = 16


class JobPods:
    """Creates, watches and replaces the pods of one job."""

    def __init__(
        self,
        asking: ApiHelper,
        plan: PodPlan,
        order: str,
        say: Callable[[str], None],
        told: Told,
        placed: Callable[[api_records.Pod], None],
        patience: GangPatience,
    ) -> None:
        """Prepare an entry for each node of the pod plan. `begin` creates the pods.

        `asking`: sends requests to the API server.
        `plan`: the plan of the job's pods.
        `order`: the agents' settings, for a variable in each pod.
        `say`: prints a message of the owner.
        `told`: called with a report about a pod that is lost, pending or impossible to create.
        `placed(pod)`: called for each pod that the scheduler has assigned to a Kubernetes node.
        `patience`: how long the gang waits for nodes and for silent agents.
        """
        self._asking = asking
        self._reactor = asking.reactor
        self._plan = plan
        self._order = order
        self._say = say
        self._told = told
        self._patience_s = patience.nodes_s
        self._placed = placed
        self._job: OwnersJob | None = None
        self._seats = [NodePlace(index) for index in range(plan.nodes + plan.spares)]
        self._pods: dict[str, api_records.Pod] = {}
        self._listed: dict[str, api_records.Pod] | None = None
        self._began_at = 0.0
        self._events: dict[str, list[api_records.Event]] = {}
        #: Pods whose end was reported, by name. True: the report said that all processes of the pod have ended.
        self._reported_ends: dict[str, bool] = {}
        #: Maps a pod's name to the time at which its agent was admitted.
        self._joined: dict[str, float] = {}
        self._doubts = DeletedPods(self._reactor, patience, self._look_again)
        #: Maps the indices of nodes whose pod cannot be created now to the reasons.
        self._not_made: dict[int, str] = {}
        #: Kubernetes nodes on which no pod of this job may run.
        self._avoid: list[str] = []
        #: When the last pod of the job disappeared, in seconds on the owner's clock.
        self._last_removal = -RETRY_S
        #: Whether a complete list of the job's pods has been received.
        self._seen = False
        #: Number of deletions that the API server has not answered yet.
        self.deleting = 0
        #: Whether the job has ended, so that no more pods are created.
        self.over = False

    # ------------------------------------------------------------------------------------ requests that the owner makes

    def begin(self, known: Callable[[str], None], before: Iterable[str] = ()) -> None:
        """Follow the existing pods, and create the missing ones.

        `known`: called with the Job's uid. `before`: names of the nodes that earlier owners of this job have admitted.
        """
        self._known = known
        self._began_at = self._reactor.now()
        for node in before:
            self._admitted_before(node)
        path = f"/apis/batch/v1/namespaces/{self._plan.namespace}/jobs/{self._plan.name}"
        self._asking.ask(Method.GET, path, self._job_is, patience_s=PATIENCE_S)

    def _job_is(self, answer: Answered, now: float) -> News:
        """Store the Job's uid, then start to follow the job's pods and events."""
        body = answer.body if isinstance(answer.body, dict) else {}
        uid = str((body.get("metadata") or {}).get("uid") or "")
        if uid:
            self._job = OwnersJob(name=self._plan.name, uid=uid)
            self._known(uid)
        elif answer.trouble is not ApiTrouble.GONE:
            words = f"Kubernetes does not say which job this is: {answer.said}"
            command = f"kubectl -n {self._plan.namespace} get job {self._plan.name}"
            return self._told(PodsImpossible(Phrase.SCHEDULER_ERROR, words, command), now)
        labels = {"labelSelector": object_names.selector(self._plan.name, object_names.AGENT)}
        self._asking.follow(self._path, self._on_message, labels)
        events = {"fieldSelector": "involvedObject.kind=Pod"}
        self._asking.follow(f"/api/v1/namespaces/{self._plan.namespace}/events", self._event, events)
        return None

    def _admitted_before(self, node: str) -> None:
        """Record a pod that an earlier owner has admitted.

        If the first list of pods lacks the pod, the pod was lost together with that owner. The next pod of its node
        must have another name.
        """
        name = pod_of(node)
        place = object_names.place_of(self._plan.name, name)
        if place is None or place[0] >= len(self._seats) or place[1] < self._seats[place[0]].generation:
            return
        seat = self._seats[place[0]]
        if seat.generation >= 0:
            self._pods.pop(self._name(seat), None)
        seat.generation = place[1]
        self._joined[name] = 0.0
        labels = {object_names.NODE: str(place[0]), object_names.GENERATION: str(place[1])}
        self._pods[name] = api_records.Pod(
            name=name, namespace=self._plan.namespace, node=node.partition(" (pod ")[0], labels=labels, deleting=True
        )

    @property
    def _path(self) -> str:
        return f"/api/v1/namespaces/{self._plan.namespace}/pods"

    def joined(self, name: str, now: float) -> int:
        """Record that the owner has admitted the agent of this pod. Return the index of its node; negative: unknown."""
        self._joined.setdefault(name, now)
        found = self._pods.get(name)
        seat = self._seat(found) if found is not None else None
        return -1 if seat is None else seat.index

    def replace(self, name: str, why: PodEndReason, now: float, *, avoid: bool = False) -> News:
        """Replace a pod whose agent is lost, or whose node the gang no longer uses.

        `why`: the reason, for messages.
        `avoid`: let no pod of this job run on the pod's Kubernetes node any more. Otherwise the next pod only prefers
            other nodes.
        """
        found = self._pods.get(name)
        if found is None or self.over:
            return None
        seat = self._seat(found)
        if avoid and found.node and found.node not in self._avoid:
            self._avoid.append(found.node)
        if seat is None or not self._is_last(seat, name):
            return None
        if not avoid and found.node:
            seat.avoided_nodes = (found.node,)
        self._reported_ends.setdefault(name, False)
        if not found.over and not found.deleting:
            self._delete(name, 5)
        self._reactor.at(now + FORCE_S, partial(self._force, name, found.uid))
        return self._succeed(seat, name, why, now)

    def finish(self) -> None:
        """At the job's end, delete the pods that have not started, and end the containers that others have added to
        running pods.

        Agents end by themselves. A deletion would also delete their logs.
        """
        self.over = True
        for seat in self._seats:
            if seat.next is not None:
                seat.next.close()
            found = self._pods.get(self._name(seat)) if seat.generation >= 0 else None
            if found is None or found.deleting:
                continue
            if found.phase is api_records.PodPhase.PENDING and found.name not in self._joined:
                self._delete(found.name, 0)
            elif found.outlives_task:
                self._limit(found, self._reactor.now())

    # --------------------------------------------------------------------------------------- handling changes of pods

    def _on_message(self, word: Listed | Changed | Unseen, now: float) -> News:
        """Handle a page of the list of pods, a change of a pod, or trouble with the watch."""
        if isinstance(word, Unseen):
            if word.trouble in (ApiTrouble.AWAY, ApiTrouble.SLOW):
                self._say(f"pods cannot be seen: {word.said}; the job goes on, and lost pods are replaced later")
                return None
            command = f"kubectl auth can-i watch pods -n {self._plan.namespace}"
            return self._told(
                PodsImpossible(Phrase.SCHEDULER_ERROR, f"pods cannot be watched: {word.said}", command), now
            )
        if isinstance(word, Listed):
            if word.first:
                self._listed = {}
            if self._listed is None:
                return None
            self._listed |= {found.name: found for item in word.items if (found := api_records.pod(item)).name}
            return self._all(now) if word.last else None
        found = api_records.pod(word.item)
        self._pods[found.name] = found
        if word.change is ObjectChange.DELETED:
            return self._removed(found, now)
        return self._look(found, now)

    def _all(self, now: float) -> News:
        """Handle a complete list of pods: report deleted pods, and create missing ones."""
        listed, self._listed = self._listed or {}, None
        news: list[Any] = []
        vanished = [found for name, found in self._pods.items() if name not in listed]
        self._pods.update(listed)
        for found in listed.values():
            seat = self._seat(found)
            if seat is not None and not self._seen:
                seat.generation = max(seat.generation, generation_of(found))
        for found in vanished:
            if found.uid:
                news += self._removed(found, now) or ()
            else:  # the first list of events follows, and may have the reason
                self._reactor.at(now + SOON_S, partial(self._lost_before, found.name))
        self._seen = True
        for found in listed.values():
            news += self._look(found, now) or ()
        if not self.over:
            for seat in self._seats:
                if seat.generation < 0 and not seat.asked:
                    seat.waiting_since = self._began_at
                    self._make(seat, now)
        return news

    def _lost_before(self, name: str, now: float) -> News:
        found = self._pods.get(name)
        return self._removed(found, now) if found is not None and not found.uid else None

    def _event(self, word: Listed | Changed | Unseen, now: float) -> News:
        """Store events about the job's pods, and examine these pods again."""
        if isinstance(word, Unseen):
            return None  # trouble with the watch of events is ignored, because the pods' own status suffices
        news: list[Any] = []
        for item in word.items if isinstance(word, Listed) else [word.item]:
            event = api_records.event(item)
            kept = self._events.setdefault(event.name, []) if event.name in self._pods else None
            if kept is None or self._pods[event.name].uid not in ("", event.of):
                continue
            kept[:] = [*[other for other in kept if other.uid != event.uid][-MOST_EVENTS + 1 :], event]
            news += self._look(self._pods[event.name], now) or ()
        return news

    def _look(self, found: api_records.Pod, now: float) -> News:
        """Handle the current state of a pod."""
        seat = self._seat(found)
        if seat is None or self.over:
            return None
        if found.node:
            self._placed(found)
        events = tuple(self._events.get(found.name, ()))
        if (why := self._doubts.why(found, events, now)) is not None:
            return self._ends(seat, found, why, now)
        is_last = self._is_last(seat, found.name)
        if is_last and (held := pod_failures.pod_wait_reason(found, events)) is not None:
            return self._waits(seat, found, held, now)
        if any(container.running for container in found.containers):
            seat.waiting_since, seat.outlook, seat.said = None, None, ""
        return self._room(seat, "") if is_last and found.node else None

    @property
    def unsure(self) -> bool:
        """Whether some pod is ending and Kubernetes has not given the reason yet."""
        return bool(self._doubts)

    def _removed(self, found: api_records.Pod, now: float) -> News:
        """Handle the disappearance of a pod's object."""
        seat = self._seat(found)
        self._pods.pop(found.name, None)
        why = self._doubts.removed(found, self._events.pop(found.name, ()), now)
        if seat is None or self.over:
            return None
        self._last_removal = now
        self._reactor.at(now + RETRY_S, self._look_at_waiting)
        return self._ends(seat, found, why, now, removed=True)

    def _ends(
        self, seat: NodePlace, found: api_records.Pod, why: PodEndReason, now: float, *, removed: bool = False
    ) -> News:
        """Report that a pod has ended or is ending, and replace it."""
        over = found.over or removed
        before = self._reported_ends.get(found.name)
        if before is None or (over and not before):
            self._reported_ends[found.name] = over
            if over and not removed and found.outlives_task and not found.deleting:
                self._limit(found, now)
            news = [*(self._told(PodLost(found, why, over=over), now) or ())]
        else:
            news = []
        if self._is_last(seat, found.name):
            news += self._succeed(seat, found.name, why, now) or ()
        return news

    def _waits(self, seat: NodePlace, found: api_records.Pod, held: PodWaitReason, now: float) -> News:
        """Handle a pod that does not start."""
        if seat.outlook is not held.outlook:
            seat.outlook, seat.outlook_since = held.outlook, now
        ends = {
            StartOutlook.NONE: now,
            StartOutlook.SOME: min(seat.outlook_since + FAILING_START_S, self._deadline(seat, now)),
            StartOutlook.YES: self._deadline(seat, now),
        }[held.outlook]
        describe = pod_failures.describe(found)
        waited_s = now - (seat.outlook_since if seat.waiting_since is None else seat.waiting_since)
        if now >= ends:
            since = f", {waited_s:.0f} s after its beginning" if waited_s >= 1 else ""
            words = f"pod {found.name} does not start{since}: {held.words}"
            return self._gives_up(seat, PodsImpossible(held.phrase, words, describe, seat.index), now)
        self._reactor.at(ends, partial(self._look_again, found.name))
        full = pod_failures.fits_nowhere(found) and self._settled(now)
        news = self._room(seat, held.words if full else "")
        if held.words != seat.said and (not seat.said or now - seat.said_at >= MESSAGE_PAUSE_S):
            seat.said, seat.said_at = held.words, now
            self._say(f"pod {found.name} waits: {held.words}\n  try: {describe}")
            news += self._told(PodPending(found, held.words), now) or ()
        return news

    def _settled(self, now: float) -> bool:
        """Return whether no pod is being deleted and none was deleted in the last `RETRY_S`: this frees resources."""
        return now >= self._last_removal + RETRY_S and not any(found.deleting for found in self._pods.values())

    def _room(self, seat: NodePlace, words: str) -> list[Any]:
        """Report that the cluster has no room for a node's pod (`words`: why), or has room again (`words`: "")."""
        changed = bool(words) is not bool(seat.no_room)
        seat.no_room = words
        return [ev.RoomChanged(place=seat.index, words=words)] if changed else []

    def _gives_up(self, seat: NodePlace, said: PodsImpossible, now: float) -> News:
        """Report that a node gets no pod. The gang also treats this as a lack of room."""
        return [*self._room(seat, said.words), *(self._told(said, now) or ())]

    def _look_at_waiting(self, now: float) -> News:
        """Examine all pods that wait for their start again, because the scheduler may have tried them again."""
        return [event for seat in self._seats if seat.said for event in self._look_again(self._name(seat), now) or ()]

    def _deadline(self, seat: NodePlace, now: float) -> float:
        """Return the end of the time for which a node may wait for a running pod.

        This is `BEFORE_GANG_LIMIT_S` before the gang gives up. The report then has the pod's reason, which the gang
        does not know.
        """
        if seat.waiting_since is None:
            seat.waiting_since = now
        return seat.waiting_since + self._patience_s() - BEFORE_GANG_LIMIT_S

    def _look_again(self, name: str, now: float) -> News:
        found = self._pods.get(name)
        return self._look(found, now) if found is not None else None

    # ------------------------------------------------------------------------------------- creating and deleting pods

    def _succeed(self, seat: NodePlace, name: str, why: PodEndReason, now: float) -> News:
        """Create a new pod for a node whose pod is lost."""
        if self.over or seat.asked or seat.next is not None:
            return None
        joined = self._joined.get(name)
        seat.failures = 0 if joined is not None and now - joined >= HEALTHY_S else seat.failures + 1
        seat.last = why
        seat.waiting_since, seat.outlook, seat.said = now, None, ""
        tries = seat.failures
        if not why.again or tries > len(PAUSES_S) or (joined is None and not _may_do_better(why.phrase)):
            times = f" ({tries} pods of this node in a row)" if tries > 1 else ""
            command = f"kubectl -n {self._plan.namespace} describe pod {name}"
            words = f"pod {name} was lost before its workers started: {why.words}{times}"
            return self._gives_up(seat, PodsImpossible(why.phrase, words, command, seat.index), now)
        pause_s = PAUSES_S[max(tries - 1, 0)]
        seat.next = self._reactor.at(now + pause_s, partial(self._due, seat))
        return None

    def _due(self, seat: NodePlace, now: float) -> None:
        seat.next = None
        self._make(seat, now)

    def _make(self, seat: NodePlace, now: float) -> None:
        """Create the next pod of a node."""
        if self.over:
            return
        seat.asked = True
        manifest = pod(self._plan, seat.index, seat.generation + 1, job=self._job, avoid=self._avoid)
        for container in manifest["spec"]["containers"]:
            if container["name"] == object_names.TASK:
                # `$$(` keeps Kubernetes from expanding `$(X)` as a variable.
                order = {"name": ORDER, "value": self._order.replace("$(", "$$(")}
                container["env"] = [*container.get("env", ()), order]
        if seat.avoided_nodes:
            rather_elsewhere(manifest["spec"], seat.avoided_nodes)
        self._asking.ask(Method.POST, self._path, partial(self._made, seat), body=manifest, patience_s=PATIENCE_S)

    def _made(self, seat: NodePlace, answer: Answered, now: float) -> News:
        """Handle the API server's answer to the creation of a pod.

        If the server is away or the quota is used up, try again for a while. Report any other failure.
        """
        seat.asked = False
        name = object_names.pod_name(self._plan.name, seat.index, seat.generation + 1)
        if answer.ok or answer.trouble is ApiTrouble.CONFLICT:
            # An answer CONFLICT means that an earlier request succeeded but its answer was lost.
            seat.generation += 1
            seat.avoided_nodes, seat.said = (), ""
            if seat.last is not None and answer.ok:
                self._say(f"pod {name} takes the place of one that is lost: {seat.last.words}")
            if answer.ok:
                found = api_records.pod(answer.body)
                self._pods.setdefault(found.name, found)
            if self._not_made.pop(seat.index, None) is not None:
                self._told(PodPending(api_records.Pod(name=name), ""), now)
            # The watch may have reported the pod before this answer came.
            return [*self._room(seat, ""), *(self._look_again(name, now) or ())]
        if self.over:
            return None
        passes = answer.trouble in (ApiTrouble.QUOTA, ApiTrouble.AWAY, ApiTrouble.SLOW)
        if passes and now < (deadline := self._deadline(seat, now)):
            words = f"cannot be made yet: {answer.said}"
            self._not_made[seat.index] = f"pod {name} {words}"
            seat.next = self._reactor.at(min(now + PAUSES_S[3], deadline), partial(self._due, seat))
            full = answer.trouble is ApiTrouble.QUOTA and self._settled(now)
            news = self._room(seat, words if full else "")
            if words == seat.said:
                return news
            seat.said = words
            self._say(self._not_made[seat.index])
            waits = PodPending(api_records.Pod(name=name, namespace=self._plan.namespace), words)
            return [*news, *(self._told(waits, now) or ())]
        phrase = Phrase.RESOURCES_INSUFFICIENT if answer.trouble is ApiTrouble.QUOTA else Phrase.SCHEDULER_ERROR
        command = f"kubectl -n {self._plan.namespace} describe quota"
        if answer.trouble is not ApiTrouble.QUOTA:
            command = f"kubectl -n {self._plan.namespace} auth can-i create pods"
        words = f"pod {name} cannot be made: {answer.said}"
        return self._gives_up(seat, PodsImpossible(phrase, words, command, seat.index), now)

    @property
    def not_made(self) -> str:
        """Why a pod cannot be created now, as a clause; "" if all pods are created."""
        return next(iter(self._not_made.values()), "")

    def _delete(self, name: str, grace_s: int) -> None:
        self.deleting += 1
        self._asking.ask(
            Method.DELETE,
            f"{self._path}/{name}",
            self._deleted,
            query={"gracePeriodSeconds": str(grace_s)},
            patience_s=30.0,
        )

    def _deleted(self, answer: Answered, now: float) -> None:
        self.deleting -= 1

    def _limit(self, found: api_records.Pod, now: float) -> None:
        """Set a time limit on a pod that added containers would keep running. Its node then ends the pod, and the pod's
        log stays.

        If the owner's account may not change pods, the pod is deleted.
        """
        self.deleting += 1

        def done(answer: Answered, _: float) -> None:
            self.deleting -= 1
            if answer.trouble is ApiTrouble.REFUSED:
                self._delete(found.name, END_S)

        deadline_s = max(0, math.ceil(now - found.began_at)) + END_S
        body = {"spec": {"activeDeadlineSeconds": deadline_s}}
        self._asking.ask(Method.PATCH, f"{self._path}/{found.name}", done, body=body, patience_s=30.0, doubt_s=0.0)

    def _force(self, name: str, uid: str, now: float) -> News:
        """Delete a pod by force if it hangs because its node does not report the pod's end. The gang has fenced the
        pod's agent.
        """
        found = self._pods.get(name)
        if found is not None and found.uid == uid and not found.over:
            self._delete(name, 0)
        return None

    # -------------------------------------------------------------------------------------- looking up nodes and pods

    def _seat(self, found: api_records.Pod) -> NodePlace | None:
        index = found.labels.get(object_names.NODE, "")
        number = int(index) if index.isdecimal() and len(index) < 7 else -1
        return self._seats[number] if 0 <= number < len(self._seats) else None

    def _name(self, seat: NodePlace) -> str:
        return object_names.pod_name(self._plan.name, seat.index, seat.generation)

    def _is_last(self, seat: NodePlace, name: str) -> bool:
        return seat.generation >= 0 and name == self._name(seat)

    def find(self, name: str) -> api_records.Pod | None:
        """Return the last known record of a pod of the job."""
        return self._pods.get(name)

    @property
    def living(self) -> int:
        """The number of pods that exist and are not ending."""
        return sum(not found.over and not found.deleting for found in self._pods.values())


def _may_do_better(phrase: str) -> bool:
    """Whether a new pod may succeed after an earlier one failed with this failure class."""
    return load().row(phrase).rerun is not Rerun.NEVER
