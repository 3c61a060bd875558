"""The owner's control socket. Other holdfast commands use it: `holdfast stop`, and notices of new entries in the
machine's fault log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.model import events as ev
from holdfast.node.stop_files import request_of
from holdfast.safe_text import one_line
from holdfast.wire.control_socket import Control, Line, Reply
from holdfast.wire.fault_news import FaultsLine

if TYPE_CHECKING:
    from holdfast.launch.launch_spec import LaunchSpec
    from holdfast.reactor import Reactor
    from holdfast.record.job_directory import JobPlace


#: Seconds from the job's start until the control socket opens. An earlier opening would use CPU time that the workers'
#: start needs, and no user types a command so early.
OPENS_S = 0.05


class ControlServer:
    """Serves the control socket in the job's directory. The socket opens a moment after the job's start.

    `place`: the job's directory. `report(event)`: passes an event to the owner. `read_faults()`: makes the nodes read
    their fault logs. `say`: prints a message.
    """

    def __init__(
        self,
        reactor: Reactor,
        place: JobPlace,
        launch: LaunchSpec,
        report: Callable[[ev.Event], None],
        read_faults: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self._reactor = reactor
        self._place = place
        self._say = say
        #: Whether the control socket is open and accepts requests.
        self.started = False
        self._launch = launch
        self._report = report
        self._read_faults = read_faults
        self._control: Control | None = None
        self._opening = reactor.at(reactor.now() + OPENS_S, self._open)

    def _open(self, now: float) -> None:
        self.started = True
        try:
            self._control = Control(self._place.directory, self._reactor, self.take)
        except OSError as error:
            job = self._place.job_id
            self._say(f"`holdfast stop {job}` will not reach this job ({error}); Ctrl-C and SIGTERM do")

    def close(self) -> None:
        self._opening.close()
        if self._control is not None:
            self._control.close()

    def take(self, line: Line) -> Reply:
        """Carry out the request of another holdfast command, and return the reply."""
        if isinstance(line, FaultsLine):
            self._read_faults()
            return Reply(True, "the fault log was read")
        if not one_line(line.reason).strip():
            return Reply(False, "a reason is needed: holdfast stop JOB --reason TEXT")
        try:
            request = request_of(line, self._launch.catalogue, self._reactor.now())
        except ValueError as error:
            return Reply(False, str(error))
        self._report(ev.StopRequested(request=request))
        grace_s = self._launch.spec.timers.grace_s
        later = f"and SIGKILL if they still run {grace_s:g} s later" if grace_s else "and SIGKILL at once"
        return Reply(True, f"its workers get SIGTERM now, {later}")
