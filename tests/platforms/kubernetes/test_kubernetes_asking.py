"""The owner asks Kubernetes through a helper: answers, refusals, watches that break, servers that are away."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kube_api import ApiReply, Asked, api, kubeconfig, list_reply, pod_document, status

from holdfast.clock import Clock
from holdfast.platforms.kubernetes.client.api_server import meant
from holdfast.platforms.kubernetes.objects.client_messages import (
    Answered,
    ApiTrouble,
    Changed,
    Listed,
    Method,
    ObjectChange,
    Unseen,
)
from holdfast.platforms.kubernetes.owner.api_helper import ApiHelper
from holdfast.reactor import Reactor

pytestmark = pytest.mark.extras
PODS_PATH = "/api/v1/namespaces/ns/pods"


class Owner:
    """What asks, in place of the job's owner."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.reactor = Reactor(Clock().now)
        self.asking = ApiHelper(self.reactor, environment)
        self.answers: list[Answered] = []
        self.heard: list[Listed | Changed | Unseen] = []

    def ask(self, method: Method, path: str, **how: Any) -> Answered:
        before = len(self.answers)
        self.asking.ask(method, path, lambda answer, now: self.answers.append(answer), **how)
        self.until(lambda: len(self.answers) > before)
        return self.answers[-1]

    def follow(self, path: str) -> Callable[[], None]:
        return self.asking.follow(path, lambda word, now: self.heard.append(word))

    def until(self, what: Callable[[], bool], limit_s: float = 60.0) -> None:
        end = self.reactor.now() + limit_s
        while not what():
            assert self.reactor.now() < end, (self.answers, self.heard)
            self.reactor.wait(longest_s=1.0)


@pytest.fixture
def api_owner() -> Iterator[Callable[[dict[str, str]], Owner]]:
    made: list[Owner] = []

    def make(environment: dict[str, str]) -> Owner:
        made.append(Owner(environment))
        return made[-1]

    yield make
    for each in made:
        each.asking.close()
        each.reactor.close()


Make = Callable[[dict[str, str]], Owner]


@pytest.mark.real
def test_an_answer_has_the_object_and_a_refusal_has_kubernetes_words(api_owner: Make, tmp_path: Path) -> None:
    quota = 'pods "p" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2'

    def answer(asked: Asked) -> ApiReply:
        if asked.method == "POST":
            return status(403, "Forbidden", quota)
        assert asked.token == "Bearer secret"
        return 200, {"kind": "Pod", "metadata": {"name": "p"}}

    with api(answer, tmp_path) as environment:
        mine = api_owner(environment)
        assert mine.ask(Method.GET, f"{PODS_PATH}/p").body == {"kind": "Pod", "metadata": {"name": "p"}}
        refused = mine.ask(Method.POST, PODS_PATH, body={"kind": "Pod"})
    assert (refused.status, refused.trouble, refused.reason, refused.said) == (
        403,
        ApiTrouble.QUOTA,
        "Forbidden",
        quota,
    )


@pytest.mark.real
def test_a_watch_goes_on_where_it_broke_and_lists_again_when_its_version_is_gone(
    api_owner: Make, tmp_path: Path
) -> None:
    numbers, over = itertools.count(), threading.Event()
    seen: list[dict[str, str]] = []

    def answer(asked: Asked) -> ApiReply | None:
        seen.append(asked.query)
        match next(numbers):
            case 0:
                return list_reply(5, pod_document("a"), more="next")
            case 1:
                return list_reply(5, pod_document("b"))
            case 2:
                return 200, [{"type": "MODIFIED", "object": pod_document("a", 7)}]
            case 3:
                return None
            case 4:
                return status(410, "Expired", "too old resource version: 7 (9)")
            case 5:
                return list_reply(9, pod_document("a", 8))
            case 6:
                return 200, [
                    {"type": "BOOKMARK", "object": pod_document("", 11)},
                    {"type": "ERROR", "object": {"code": 410}},
                ]
            case 7:
                return list_reply(12)
            case 8:
                return 200, [{"type": "DELETED", "object": pod_document("a", 13)}]
        over.wait(60)
        return None

    with api(answer, tmp_path) as environment:
        mine = api_owner(environment)
        mine.follow(PODS_PATH)
        mine.until(
            lambda: any(isinstance(word, Changed) and word.change is ObjectChange.DELETED for word in mine.heard)
        )
        mine.asking.close()
        over.set()
    shape = [
        (word.first, word.last, [item["metadata"]["name"] for item in word.items]) if isinstance(word, Listed) else word
        for word in mine.heard
        if not isinstance(word, Changed)
    ]
    assert shape == [(True, False, ["a"]), (False, True, ["b"]), (True, True, ["a"]), (True, True, [])]
    assert [query.get("resourceVersion") for query in seen[:9]] == [None, None, "5", "7", "7", None, "9", None, "12"]
    assert "managedFields" not in str(mine.heard)


@pytest.mark.real
def test_a_server_that_is_away_is_asked_again_and_a_watch_says_that_it_sees_nothing(
    api_owner: Make, tmp_path: Path
) -> None:
    tries, gone = itertools.count(), threading.Event()

    def answer(asked: Asked) -> ApiReply | None:
        if gone.is_set():
            return None
        if asked.path == PODS_PATH:
            return status(503, "ServiceUnavailable", "etcd has no leader")
        return (200, {"kind": "Pod"}) if next(tries) else status(500, "InternalError", "starting")

    with api(answer, tmp_path) as environment:
        mine = api_owner(environment)
        assert mine.ask(Method.GET, f"{PODS_PATH}/p", patience_s=60).ok
        mine.follow(PODS_PATH)
        mine.until(lambda: bool(mine.heard))
        assert mine.heard == [
            Unseen(number=2, trouble=ApiTrouble.AWAY, said="the API server answers 503 (etcd has no leader)")
        ]
        gone.set()
        cut = mine.ask(Method.GET, f"{PODS_PATH}/p")
    assert cut.trouble is ApiTrouble.AWAY and cut.said.startswith("the API server does not answer (")


STARTS = 'User "train" cannot list resource "pods": RBAC: clusterrole "system:basic-user" not found'


@pytest.mark.real
@pytest.mark.parametrize(
    ("code", "words"),
    [(403, STARTS), (401, "Unauthorized"), (403, "pods is forbidden: not yet ready to handle request")],
)
def test_a_server_that_starts_refuses_for_a_while_and_is_not_believed(
    code: int, words: str, api_owner: Make, tmp_path: Path
) -> None:
    asked_of: dict[bool, int] = {True: 0, False: 0}
    over = threading.Event()

    def answer(asked: Asked) -> ApiReply | None:
        if asked.watches:
            over.wait(60)
            return None
        lists = asked.path == PODS_PATH
        asked_of[lists] += 1
        if asked_of[lists] == 1 and lists:
            return None  # the connection of before breaks first
        if asked_of[lists] < 4:
            return status(code, "Forbidden", words)
        return list_reply(1) if lists else (200, {"kind": "Pod"})

    with api(answer, tmp_path) as environment:
        mine = api_owner(environment)
        assert mine.ask(Method.GET, f"{PODS_PATH}/p", patience_s=60).ok
        mine.follow(PODS_PATH)
        mine.until(lambda: any(isinstance(word, Listed) for word in mine.heard))
        over.set()
    assert not [word for word in mine.heard if isinstance(word, Unseen) and word.trouble is ApiTrouble.REFUSED]


@pytest.mark.real
def test_a_refusal_that_lasts_is_believed(api_owner: Make, tmp_path: Path) -> None:
    tries = itertools.count()

    def answer(asked: Asked) -> ApiReply:
        next(tries)
        return status(403, "Forbidden", "no right to patch")

    with api(answer, tmp_path) as environment:
        mine = api_owner(environment)
        refused = mine.ask(Method.GET, f"{PODS_PATH}/p", patience_s=600, doubt_s=0.5)
        assert (refused.trouble, refused.said) == (ApiTrouble.REFUSED, "no right to patch")
        assert next(tries) > 1, "it was not asked again"
        mine.follow(PODS_PATH)
        mine.until(lambda: bool(mine.heard))  # the client process doubts for ten seconds
    assert mine.heard == [Unseen(number=2, trouble=ApiTrouble.REFUSED, said="no right to patch")]


@pytest.mark.real
def test_a_token_that_was_renewed_is_read_again(api_owner: Make, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")

    def answer(asked: Asked) -> ApiReply:
        if asked.token != f"Bearer {token.read_text()}":
            return status(401, "Unauthorized", "Unauthorized")
        return 200, {"kind": "Pod"}

    with api(answer, tmp_path) as environment:
        config = Path(environment["KUBECONFIG"])
        url = config.read_text().split('"server": "')[1].split('"')[0]
        config.write_text(kubeconfig(url, {"token-file": str(token), "tokenFile": str(token)}))
        mine = api_owner(environment)
        assert mine.ask(Method.GET, f"{PODS_PATH}/p").ok
        token.write_text("new")
        assert mine.ask(Method.GET, f"{PODS_PATH}/p").ok


@pytest.mark.real
def test_a_client_that_is_killed_is_started_again_and_follows_on(api_owner: Make, tmp_path: Path) -> None:
    over = threading.Event()

    def answer(asked: Asked) -> ApiReply | None:
        if asked.watches:
            over.wait(60)
            return None
        return list_reply(1, pod_document("a"))

    with api(answer, tmp_path) as environment:
        mine = api_owner(environment)
        mine.follow(PODS_PATH)
        mine.until(lambda: len(mine.heard) == 1)
        assert mine.asking._helper is not None
        os.kill(mine.asking._helper._child.pid, 9)
        mine.until(lambda: len(mine.heard) == 2)
        mine.asking.close()
        over.set()
    assert mine.heard[0] == mine.heard[1]


@pytest.mark.real
def test_a_pod_without_a_cluster_is_told_what_is_missing(api_owner: Make, tmp_path: Path) -> None:
    answer = api_owner({"KUBECONFIG": str(tmp_path / "none")}).ask(Method.GET, PODS_PATH, patience_s=60)
    assert answer.trouble is ApiTrouble.MISSING
    assert answer.said == f"no cluster is configured: Configuration file {tmp_path}/none not found"


@pytest.mark.parametrize(
    ("code", "trouble"),
    [
        (200, ApiTrouble.NONE),
        (201, ApiTrouble.NONE),
        (401, ApiTrouble.REFUSED),
        (403, ApiTrouble.REFUSED),
        (404, ApiTrouble.GONE),
        (409, ApiTrouble.CONFLICT),
        (422, ApiTrouble.INVALID),
        (429, ApiTrouble.AWAY),
        (504, ApiTrouble.AWAY),
        (302, ApiTrouble.FAILED),
    ],
)
def test_each_status_has_its_trouble(code: int, trouble: ApiTrouble) -> None:
    assert meant(code, None)[0] is trouble
