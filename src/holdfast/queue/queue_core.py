"""The core's state: the jobs that wait and run. It answers requests, starts jobs by the plan, and notes their ends."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from holdfast.decide.queue.queue_model import (
    FairShare,
    Machine,
    Needs,
    Policy,
    Priority,
    Reservation,
    RunningJob,
    Use,
    WaitingJob,
    share_of,
)
from holdfast.decide.queue.queue_plan import Plan, never_fits, plan
from holdfast.model.human_format import counted
from holdfast.queue import job_start
from holdfast.queue.core_messages import (
    AwaitEnd,
    CancelJob,
    CoreAnswer,
    GetStatus,
    ListQueue,
    QueueRow,
    Request,
    SetPriority,
    ShutDown,
    SubmitJob,
)
from holdfast.queue.core_place import CorePlace
from holdfast.queue.core_records import CoreRecords, JobStage, RecordedJob
from holdfast.queue.job_end import end_unstarted
from holdfast.queue.machine_parts import available_memory, cpus_here
from holdfast.reactor import Reactor
from holdfast.record.owner_lock import OwnerLiveness, boot_id, life_of, read_owner
from holdfast.record.state_directory import job_dir

#: Shortest time between two plans, in seconds, so that a burst of submissions costs one plan.
PLAN_PAUSE_S = 0.05
#: The core ends when for this long no job has waited or run and no command was connected, in seconds.
IDLE_S = 10.0
#: How often the core looks for the process of a job whose start an earlier core did not record, in seconds.
SEARCH_S = 0.2
#: Most jobs that may wait.
MOST_WAITING = 10_000

Answer = Callable[[CoreAnswer], None]


class QueueCore:
    """All jobs of one queue. Only this object writes the core's records.

    `place`: the core's files. `machine`: returns what the queue may give now. `policy`: the rules of the queue. `user`:
    the name of the user whose jobs these are. `say`: writes a line to the core's log.
    """

    def __init__(
        self,
        place: CorePlace,
        records: CoreRecords,
        reactor: Reactor,
        machine: Callable[[], Machine],
        policy: Policy,
        user: str,
        say: Callable[[str], None],
    ) -> None:
        self._place = place
        self._records = records
        self._reactor = reactor
        self._machine = machine
        self._policy = policy
        self._user = user
        self._say = say
        self._since = reactor.now()
        #: Job id → job, in the order of submission.
        self._jobs: dict[str, RecordedJob] = {}
        self._pidfds: dict[str, int] = {}
        self._reservations: dict[str, Reservation] = {}
        self._plan: Plan | None = None
        self._awaited: dict[str, list[Answer]] = {}
        self._planned_at = 0.0
        #: When the next plan is due; None: when something changes.
        self._plan_at: float | None = None
        self._idle_since: float | None = self._since
        self.over = False
        shares = {user: Use(amount=used, at=at) for user, (used, at) in records.shares().items()}
        self._shares = FairShare(half_life_s=policy.half_life_s, used=shares)
        reactor.deadlines(lambda: self._plan_at, self._replan)

    # ------------------------------------------------------------------------------------------------------- requests

    def take(self, request: Request, answer: Answer) -> None:
        """Carry out a request. `answer` gets the answer, at once or later."""
        match request:
            case SubmitJob():
                answer(self._submit(request))
            case CancelJob():
                answer(self._cancel(request.id))
            case SetPriority():
                answer(self._set_priority(request))
            case ListQueue():
                answer(CoreAnswer(rows=tuple(self._rows())))
            case AwaitEnd():
                if request.id in self._jobs:
                    self._awaited.setdefault(request.id, []).append(answer)
                else:
                    answer(CoreAnswer(unknown=True))
            case GetStatus():
                running, waiting = self._counts()
                answer(CoreAnswer(pid=os.getpid(), since=self._since, running=running, waiting=waiting))
            case ShutDown():
                answer(CoreAnswer(message=self._farewell()))
                self.over = True

    def _submit(self, wish: SubmitJob) -> CoreAnswer:
        if wish.id in self._jobs:
            return CoreAnswer(message=f"job {wish.id} is in the queue already")
        if not job_dir(self._place.home, wish.id).is_dir():
            return CoreAnswer(ok=False, message=f"job {wish.id} has no directory in {self._place.home}")
        priority = _priority(wish.priority)
        if priority is None:
            return CoreAnswer(ok=False, message=_no_priority(wish.priority), hint="holdfast submit --priority high …")
        machine = self._machine()
        if not wish.devices_known and machine.devices:
            return CoreAnswer(
                ok=False,
                message=f"this machine has {counted(len(machine.devices), 'device')}: say how many the job needs with "
                "--devices N (0 for none)",
                hint="holdfast submit --devices 1 …, or --devices 0 …",
            )
        if wish.needs.cpus > cpus_here():
            return CoreAnswer(
                ok=False,
                message=f"the job needs {wish.needs.cpus} CPUs, and this machine has {cpus_here()}",
                hint=f"holdfast submit --cpus {cpus_here()} …",
            )
        needs = needs_of(wish, machine, self._policy)
        if refusal := never_fits(machine, needs, self._policy):
            return CoreAnswer(ok=False, message=refusal, hint="holdfast queue; holdfast devices")
        if self._counts()[1] >= MOST_WAITING:
            return CoreAnswer(
                ok=False, message=f"{MOST_WAITING} jobs wait already, and no more may", hint="holdfast queue"
            )
        job = RecordedJob(
            id=wish.id,
            name=wish.name,
            user=self._user,
            needs=needs,
            priority=wish.priority,
            submitted_at=self._reactor.now(),
            place=max((known.place for known in self._jobs.values()), default=0) + 1,
            time_s=wish.time_s,
        )
        self._put(job)
        self._plan_soon()
        return CoreAnswer()

    def _cancel(self, job_id: str) -> CoreAnswer:
        job = self._jobs.get(job_id)
        if job is None:
            return CoreAnswer(ok=False, unknown=True, message="it is not in the queue")
        if job.stage is not JobStage.WAITING:
            return CoreAnswer(ok=False, message="it has just begun", hint=f"holdfast stop {job_id} --reason TEXT")
        self._forget(job)
        self._answer_awaited(job_id)
        self._plan_soon()
        return CoreAnswer()

    def _set_priority(self, wish: SetPriority) -> CoreAnswer:
        job = self._jobs.get(wish.id)
        if job is None:
            return CoreAnswer(ok=False, unknown=True, message=f"job {wish.id} is not in the queue")
        if _priority(wish.priority) is None:
            return CoreAnswer(ok=False, message=_no_priority(wish.priority), hint=f"holdfast priority {wish.id} high")
        self._put(replace(job, priority=wish.priority))
        self._plan_soon()
        was = f", it was {job.priority}" if job.priority != wish.priority else " already"
        return CoreAnswer(message=f"job {job.id} ({job.name}): priority {wish.priority}{was}")

    def _farewell(self) -> str:
        running, waiting = self._counts()
        if not running and not waiting:
            return "the core ends"
        going, kept = counted(running, "running job"), counted(waiting, "waiting job")
        return f"the core ends, and no job with it: {going}, {kept} (they start once a core runs again)"

    def _counts(self) -> tuple[int, int]:
        waiting = sum(job.stage is JobStage.WAITING for job in self._jobs.values())
        return len(self._jobs) - waiting, waiting

    def _rows(self) -> Iterable[QueueRow]:
        if self._plan_at is not None:
            self._replan(self._reactor.now())
        reasons = self._plan.reasons if self._plan is not None else {}
        for job in self._jobs.values():
            waits = job.stage is JobStage.WAITING
            reason = reasons.get(job.id) if waits else None
            yield QueueRow(
                id=job.id,
                name=job.name,
                user=job.user,
                state="queued" if waits else "running",
                priority=job.priority,
                devices=job.devices,
                needs=job.needs,
                why=reason.words() if reason is not None else "",
                starts_at=reason.starts_at if reason is not None else None,
                submitted_at=job.submitted_at,
                started_at=job.started_at,
                ends_at=_ends_at(job),
            )

    # --------------------------------------------------------------------------------------------------------- starts

    def _plan_soon(self) -> None:
        self._plan_at = max(self._reactor.now(), self._planned_at + PLAN_PAUSE_S)

    def _replan(self, now: float) -> None:
        self._planned_at, self._plan_at = now, None
        machine = replace(self._machine(), available=available_memory())
        jobs = self._jobs.values()
        waiting = [self._waiting(job) for job in jobs if job.stage is JobStage.WAITING]
        running = [_running(job) for job in jobs if job.stage is not JobStage.WAITING]
        found = self._plan = plan(now, machine, running, waiting, self._policy, self._shares)
        self._reservations = {each.job: each for each in found.reservations}
        self._plan_at = found.wake_at
        for chosen in found.starts:
            self._start(self._jobs[chosen.job], chosen.devices, now)
        if found.starts:
            # A start that fails gives its devices back, so plan again.
            waits = any(job.stage is JobStage.WAITING for job in self._jobs.values())
            failed = any(chosen.job not in self._jobs for chosen in found.starts)
            if waits and failed:
                self._plan_soon()

    def _waiting(self, job: RecordedJob) -> WaitingJob:
        return WaitingJob(
            id=job.id,
            name=job.name,
            user=job.user,
            priority=_known(job.priority),
            needs=job.needs,
            time_s=job.time_s,
            submitted_at=job.submitted_at,
            eligible_since=job.submitted_at,
            reservation=self._reservations.get(job.id),
        )

    def _start(self, job: RecordedJob, devices: tuple[str, ...], now: float) -> None:
        # The record comes before the start: after a power loss the start lock tells whether the job runs.
        job = self._put(replace(job, stage=JobStage.STARTING, devices=devices, started_at=now))
        directory = job_dir(self._place.home, job.id)
        try:
            given = job_start.variables_of(devices, self._machine())
            pid, pidfd = job_start.start(job.id, directory, given)
        except job_start.StartFailed as error:
            self._say(f"job {job.id} ({job.name}) could not be started: {error.message}")
            end_unstarted(self._place.home, job, error.message, now)
            self._forget(job)
            self._answer_awaited(job.id)
            return
        self._put(replace(job, stage=JobStage.RUNNING, pid=pid, ticks=job_start.ticks_of(pid), boot_id=boot_id()))
        self._watch(job.id, pidfd)

    # ----------------------------------------------------------------------------------------------------------- ends

    def _watch(self, job_id: str, pidfd: int) -> None:
        self._pidfds[job_id] = pidfd
        self._reactor.watch(pidfd, lambda fd, now: self._ended(job_id, now))

    def _ended(self, job_id: str, now: float) -> None:
        pidfd = self._pidfds.pop(job_id)
        self._reactor.forget(pidfd)
        try:
            os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
        except ChildProcessError:
            pass  # an earlier core has started the job, so it is no child of this process
        os.close(pidfd)
        self._end(self._jobs[job_id], now)

    def _end(self, job: RecordedJob, now: float) -> None:
        """Give the devices of a job that has ended to others."""
        if job.started_at is not None:
            machine = self._machine()
            share = share_of(machine, len(job.devices), job.needs.cpus)
            self._shares = self._shares.charged(job.user, share, job.started_at, now)
            use = self._shares.used[job.user]
            self._records.put_share(job.user, use.amount, use.at)
        self._forget(job)
        (job_dir(self._place.home, job.id) / job_start.SUBMISSION_NAME).unlink(missing_ok=True)
        self._answer_awaited(job.id)
        self._plan_soon()

    def _answer_awaited(self, job_id: str) -> None:
        for answer in self._awaited.pop(job_id, ()):
            answer(CoreAnswer())

    # ---------------------------------------------------------------------------------------------- after a core's end

    def adopt(self) -> None:
        """Take over the jobs that an earlier core has left. Running jobs are right where the records differ."""
        for job in self._records.jobs():
            self._jobs[job.id] = job
        now = self._reactor.now()
        for job in tuple(self._jobs.values()):
            match job.stage:
                case JobStage.WAITING:
                    if not job_dir(self._place.home, job.id).is_dir():
                        self._forget(job)  # a user has removed the job
                case JobStage.STARTING:
                    self._find(job.id, now)
                case JobStage.RUNNING:
                    self._adopt_running(job, now)
        self._plan_soon()

    def _adopt_running(self, job: RecordedJob, now: float) -> None:
        assert job.pid is not None, "the process of a running job is known"
        try:
            pidfd = os.pidfd_open(job.pid)
        except OSError:
            self._end(job, now)
            return
        if job.boot_id != boot_id() or job_start.ticks_of(job.pid) != job.ticks:
            os.close(pidfd)
            self._end(job, now)
            return
        self._watch(job.id, pidfd)

    def _find(self, job_id: str, now: float) -> None:
        """Find the process of a job whose start was not recorded to its end."""
        job = self._jobs.get(job_id)
        if job is None:
            return
        directory = job_dir(self._place.home, job_id)
        owner = read_owner(directory)
        if life_of(directory) is OwnerLiveness.ALIVE and owner is not None and (ticks := job_start.ticks_of(owner.pid)):
            job = self._put(replace(job, stage=JobStage.RUNNING, pid=owner.pid, ticks=ticks, boot_id=owner.boot_id))
            self._adopt_running(job, now)
        elif job_start.is_started(directory):
            self._reactor.at(now + SEARCH_S, lambda then: self._find(job_id, then))
        elif owner is not None and not owner.queued:
            self._end(job, now)  # the run had begun, and has ended
        else:
            self._put(replace(job, stage=JobStage.WAITING, devices=(), started_at=None))
            self._plan_soon()

    # -------------------------------------------------------------------------------------------------------- records

    def _put(self, job: RecordedJob) -> RecordedJob:
        self._records.put(job)
        self._jobs[job.id] = job
        self._idle_since = None
        return job

    def _forget(self, job: RecordedJob) -> None:
        self._records.remove(job.id)
        del self._jobs[job.id]
        self._reservations.pop(job.id, None)

    def idle_until(self, connected: bool) -> float | None:
        """Return when the core ends because it has nothing to do; None while it has. `connected`: a command waits."""
        if self._jobs or connected:
            self._idle_since = None
            return None
        if self._idle_since is None:
            self._idle_since = self._reactor.now()
        return self._idle_since + IDLE_S

    def close(self) -> None:
        for fd in self._pidfds.values():
            self._reactor.forget(fd)
            os.close(fd)
        self._records.close()


def needs_of(wish: SubmitJob, machine: Machine, policy: Policy) -> Needs:
    """Return the needs with names in place of device numbers, and with a share of the CPUs if none are typed."""
    names = {str(each.index): each.name for each in machine.devices}
    on = tuple(names.get(each, each) for each in wish.needs.on)
    devices = max(wish.needs.devices, len(on))
    cpus = wish.needs.cpus
    if not cpus:
        ours = machine.cpus - policy.reserve_cpus
        share = devices * ours // len(machine.devices) if machine.devices and devices else wish.workers
        cpus = max(1, min(share, ours))
    return replace(wish.needs, on=on, devices=devices, cpus=cpus)


def _running(job: RecordedJob) -> RunningJob:
    assert job.started_at is not None, "the record of a start has its time"
    return RunningJob(
        id=job.id,
        user=job.user,
        priority=_known(job.priority),
        needs=job.needs,
        devices=job.devices,
        started_at=job.started_at,
        time_s=job.time_s,
        ends_at=_ends_at(job),
    )


def _ends_at(job: RecordedJob) -> float | None:
    return job.started_at + job.time_s if job.started_at is not None and job.time_s is not None else None


def _priority(name: str) -> Priority | None:
    return Priority.__members__.get(name.upper()) if name.islower() else None


def _known(name: str) -> Priority:
    return _priority(name) or Priority.NORMAL if _priority(name) is not Priority.LOW else Priority.LOW


def _no_priority(name: str) -> str:
    names = ", ".join(each.name.lower() for each in Priority)
    return f"priority {name}: expected one of {names}"
