"""Handle `holdfast stop` from outside the cluster. The request is an annotation of the Job, which the owner watches.

    stop_requests = StopRequests(asking, namespace, name, say, job_is)
    stop_requests.begin()

Each new request becomes an event `StopRequested`. The owner's answer is another annotation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from holdfast.catalogue.exit_rows import load
from holdfast.catalogue.stop_phrases import BY_OPERATOR, choose
from holdfast.model import events as ev
from holdfast.model.evidence import StopRequest
from holdfast.platforms.kubernetes.objects.client_messages import (
    Answered,
    Changed,
    Listed,
    Method,
    ObjectChange,
    Unseen,
)
from holdfast.platforms.kubernetes.objects.stop_annotation import (
    StopAnnotation,
    StopAnnotationReply,
    heard_of,
    stop_reply_patch,
    wish_of,
)
from holdfast.safe_text import one_line

if TYPE_CHECKING:
    from holdfast.platforms.kubernetes.owner.api_helper import ApiHelper
    from holdfast.reactor import News

NOTHING_TO_REPAIR = "Nothing to repair: submit the job again when you want it to go on."
#: How long to retry writing the answer, in seconds.
PATIENCE_S = 30.0


class StopRequests:
    """Handles stop requests for one job."""

    def __init__(
        self,
        asking: ApiHelper,
        namespace: str,
        name: str,
        say: Callable[[str], None],
        job_is: Callable[[Mapping[str, Any], ObjectChange | None, float], News],
    ) -> None:
        """Prepare to handle stop requests. `begin` starts to watch the owner's Job for them.

        `asking`: sends requests to the API server.
        `namespace`, `name`: namespace and name of the owner's Job.
        `say`: prints a message.
        `job_is(job, change, now)`: called with the Job whenever it changes. `change`: None: the Job was listed.
        """
        self._asking = asking
        self._jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        self._name = name
        self._say = say
        self._job_is = job_is
        #: Id of the last stop request that was handled.
        self._done = ""

    def begin(self) -> Callable[[], None]:
        """Start to watch the Job. Return a function that ends the watch."""
        return self._asking.follow(self._jobs, self._seen, {"fieldSelector": f"metadata.name={self._name}"})

    def _seen(self, news: Listed | Changed | Unseen, now: float) -> News:
        match news:
            case Listed():
                jobs, change = news.items, None
            case Changed():
                jobs, change = [news.item], news.change
            case Unseen():
                return None  # ignore trouble with the watch: `holdfast stop` then reports that no answer came
        return [event for job in jobs for event in (*(self._job_is(job, change, now) or ()), *self._of(job, now))]

    def _of(self, job: Any, now: float) -> list[ev.Event]:
        """Handle the stop request on a Job if the request is new, and answer it."""
        wish = wish_of(job)
        if wish is None or wish.id == self._done:
            return []
        heard = heard_of(job)
        self._done = wish.id
        if heard is not None and heard.id == wish.id and not heard.ok:
            return []  # the owner's previous pod has already refused this request
        why, phrase, code = "", "", None
        try:
            phrase, code = _chosen(wish)
        except ValueError as error:
            why = str(error)
        if heard is None or heard.id != wish.id:
            self._answer(StopAnnotationReply(id=wish.id, ok=not why, message=why or "its workers get SIGTERM now"))
        if why:
            self._say(f"a stop request at the Job is refused: {why}")
            return []
        request = StopRequest(
            reason=one_line(wish.reason),
            solution=one_line(wish.solution) or (NOTHING_TO_REPAIR if phrase == BY_OPERATOR else ""),
            phrase=phrase,
            code=code,
            who=one_line(wish.who),
            at=now,
        )
        return [ev.StopRequested(request=request)]

    def _answer(self, heard: StopAnnotationReply) -> None:
        def done(_: Answered, __: float) -> News:
            return None  # ignore whether the answer was written, because the job does not depend on it

        path = f"{self._jobs}/{self._name}"
        self._asking.ask(Method.PATCH, path, done, body=stop_reply_patch(heard), patience_s=PATIENCE_S)


def _chosen(wish: StopAnnotation) -> tuple[str, int | None]:
    """Return failure class and code of a stop request. Raises ValueError with a sentence if they are invalid."""
    if not one_line(wish.reason).strip():
        raise ValueError("a reason is needed")
    if not wish.phrase and wish.code is None:
        return BY_OPERATOR, None
    return choose(wish.phrase, wish.code, wish.who, load())
