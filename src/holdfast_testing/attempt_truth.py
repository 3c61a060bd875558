"""What really happened in one attempt, as only a simulation can know."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Truth:
    """What really befell one attempt. Times are simulated seconds."""

    #: (when, what, ranks, node) of everything that went wrong by itself, in order.
    ills: list[tuple[float, str, tuple[int, ...], str]] = field(default_factory=list)
    #: Rank → the cause of its process's end.
    deaths: dict[int, str] = field(default_factory=dict)
    #: Rank → the boot of the agent that started it last.
    started_by: dict[int, int] = field(default_factory=dict)
    died_at: dict[int, float] = field(default_factory=dict)
    #: Rank → when it began to die, where that takes time.
    dying_at: dict[int, float] = field(default_factory=dict)
    #: Node → when the processes there were first asked to leave.
    signalled: dict[str, float] = field(default_factory=dict)
    nodes: dict[str, list[int]] = field(default_factory=dict)
    prepared: set[int] = field(default_factory=set)
    up: set[int] = field(default_factory=set)
    #: The rank whose failure the owner heard of first.
    first_heard: int | None = None
    stopped_at: float | None = None
    out_of_memory: set[int] = field(default_factory=set)
    split: bool = False
    #: How many ranks it has.
    size: int = 0
