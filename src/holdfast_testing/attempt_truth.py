"""The truth about one attempt, which only a simulation knows."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Truth:
    """The true events of one attempt. Times are simulated seconds."""

    #: Every trouble that no other trouble caused, in time order, as (time, trouble, ranks, node).
    ills: list[tuple[float, str, tuple[int, ...], str]] = field(default_factory=list)
    #: Rank → the cause of its process's end.
    deaths: dict[int, str] = field(default_factory=dict)
    #: Rank → the boot number of the agent that started it last.
    started_by: dict[int, int] = field(default_factory=dict)
    died_at: dict[int, float] = field(default_factory=dict)
    #: Rank → when its process began to die, if dying takes time.
    dying_at: dict[int, float] = field(default_factory=dict)
    #: Node → when the processes on it first got a signal to stop.
    signalled: dict[str, float] = field(default_factory=dict)
    nodes: dict[str, list[int]] = field(default_factory=dict)
    prepared: set[int] = field(default_factory=set)
    up: set[int] = field(default_factory=set)
    #: The rank whose failure the owner learnt of first.
    first_heard: int | None = None
    stopped_at: float | None = None
    out_of_memory: set[int] = field(default_factory=set)
    split: bool = False
    #: The number of ranks of the attempt.
    size: int = 0
