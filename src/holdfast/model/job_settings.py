"""Settings of a job as its owner sends them to the agents."""

from __future__ import annotations

from holdfast.model.noun_base import Noun


class JobSetting(Noun, frozen=True, kw_only=True):
    """One setting that somebody has set where the owner runs. A setting that is not sent has its default."""

    name: str
    value: str | bool | int | float | tuple[str, ...] | None
    #: The strength of the place that it came from, as in `holdfast.settings.resolved_settings.SettingSource`.
    source: int
    #: That place in words: `--log-size`, `/etc/holdfast/config.yaml`.
    origin: str
