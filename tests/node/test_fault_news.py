"""`holdfast faults report` on a node of a job: its agent hears that the fault log has something new."""

from __future__ import annotations

from pathlib import Path

from holdfast.clock import Clock
from holdfast.node.agent.fault_news_listener import FaultNews
from holdfast.reactor import Reactor
from holdfast.wire.fault_news import NEWS_NAME, notify_all


def test_an_agent_hears_of_news_once_for_several_messages(tmp_path: Path) -> None:
    directory = tmp_path / "jobs" / "j" / "nodes" / "k1__pod_train-1_"
    directory.mkdir(parents=True)
    reactor = Reactor(Clock().now)
    heard: list[float] = []
    news = FaultNews(directory, reactor, heard.append)
    try:
        assert [notify_all(tmp_path), notify_all(tmp_path)] == [1, 1]
        reactor.wait()
        assert len(heard) == 1
    finally:
        news.close()
        reactor.close()
    assert not (directory / NEWS_NAME).exists()
    assert notify_all(tmp_path) == 0


def test_an_agent_that_was_killed_leaves_a_socket_that_its_successor_replaces(tmp_path: Path) -> None:
    directory = tmp_path / "jobs" / "j" / "nodes" / "n2"
    directory.mkdir(parents=True)
    reactor = Reactor(Clock().now)
    killed = FaultNews(directory, reactor, lambda now: None)
    news = FaultNews(directory, reactor, lambda now: None)
    try:
        assert notify_all(tmp_path) == 1
    finally:
        killed.close()
        news.close()
        reactor.close()


def test_a_directory_that_takes_no_socket_is_done_without(tmp_path: Path) -> None:
    reactor = Reactor(Clock().now)
    FaultNews(tmp_path / "gone", reactor, lambda now: None).close()
    reactor.close()
