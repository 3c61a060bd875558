"""Watches a run's files of fault codes and rules (inotify), so that an edit takes effect while the job runs.

After an edit in a wrong format, the file is not used: the default configuration applies, with a warning, as at the
start. While a file is missing or unreadable the rules in force stay, because an editor may write in two steps.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError
from holdfast.node import devices
from holdfast.observe.folder_watch import FolderWatch

if TYPE_CHECKING:
    from holdfast.decide.faults.fault_policy import Policy
    from holdfast.reactor import Reactor

#: Seconds from the first sign of an edit until the file is read. An editor may write, rename and touch the file in
#: quick succession.
SETTLE_S = 0.25
_STAYS = "what was in force before stays"


class RuleFiles:
    """Watches the files with fault codes and rules; `take` returns edits. Without files it does nothing.

    `codes`, `rules`: the files of fault codes and of rules, or None. `say` prints a message to the user.
    """

    def __init__(
        self,
        codes: str | None,
        rules: str | None,
        *,
        reactor: Reactor,
        say: Callable[[str], None],
    ) -> None:
        self._codes, self._rules = codes, rules
        self._files = tuple(Path(name) for name in dict.fromkeys((codes, rules)) if name is not None)
        self._reactor = reactor
        self._say = say
        self._policy: Policy | None = None
        self._seen = self._looks()
        self._watches: dict[int, FolderWatch] = {}
        self._due: float | None = None

    @property
    def given(self) -> bool:
        return bool(self._files)

    def policy(self) -> Policy:
        """Return the policy in the files; while a file is missing, return the last policy. Raises HoldfastError."""
        if self._policy is None:
            before, self._seen = self._seen, self._looks()
            loaded = devices.load_policy(self._codes, self._rules)
            self._policy = loaded.policy
            # The start has printed the warnings already, so print them only after a change.
            for text in loaded.warnings if self._seen != before else ():
                self._say(text)
        return self._policy

    def watch(self) -> None:
        """Start to watch the rule files for edits. A second call does nothing."""
        if self._watches or not self._files:
            return
        # The path may be a symbolic link, so watch both the folder of the link and the folder of its target.
        folders = {folder for path in self._files for folder in (path.parent, Path(os.path.realpath(path)).parent)}
        for folder in sorted(folders):
            try:
                watch = FolderWatch(folder, gone=True)
            except OSError as error:
                self._say(f"{folder} cannot be watched ({error.strerror}): edits of the fault rules there are not seen")
                continue
            self._watches[watch.fileno()] = watch
            self._reactor.watch(watch.fileno(), self._ready)
        self.policy()

    def _ready(self, fd: int, now: float) -> None:
        """Handle a change in a watched folder. It may concern one of the rule files."""
        self._watches[fd].take()
        if self._due is None and self._looks() != self._seen:
            self._due = now + SETTLE_S

    def next_wake(self) -> float | None:
        return self._due

    def take(self, now: float) -> Policy | None:
        """Return the rules that are in force from now on, or None if nothing has changed."""
        if self._due is None or now < self._due:
            return None
        self._due = None
        self._seen = self._looks()
        for path, look in zip(self._files, self._seen, strict=True):
            if not look:
                self._say(f"{path} IS NOT USED: it is no regular file any more; {_STAYS}")
                return None
        try:
            loaded = devices.load_policy(self._codes, self._rules)
        except HoldfastError as error:
            self._say(f"{error.message}; {_STAYS}")
            return None
        for text in loaded.warnings:
            self._say(text)
        if loaded.policy == self._policy:
            return None
        self._policy = loaded.policy
        names = ", ".join(str(path) for path in self._files)
        if not loaded.unused:
            self._say(f"{names} was edited: its codes and rules are in force from now on; counts and timers go on")
        return loaded.policy

    def close(self) -> None:
        for watch in self._watches.values():
            self._reactor.forget(watch.fileno())
            watch.close()
        self._watches.clear()

    def _looks(self) -> list[tuple[int, ...]]:
        """Return each file's identity (device, inode, size, modification time), or () if it is no regular file."""
        found: list[tuple[int, ...]] = []
        for path in self._files:
            try:
                info = path.stat()
            except OSError:
                found.append(())
                continue
            whole = stat.S_ISREG(info.st_mode)
            found.append((info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns) if whole else ())
        return found
