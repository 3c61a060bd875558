"""Settings of a job as its owner sends them to the agents."""

from __future__ import annotations

from holdfast.model.noun_base import Noun


class JobSetting(Noun, frozen=True, kw_only=True):
    """One setting that was set where the owner runs. The owner sends no setting that has its default."""

    name: str
    value: str | bool | int | float | tuple[str, ...] | None
    #: The strength of the setting's source, as in `holdfast.settings.resolved_settings.SettingSource`.
    source: int
    #: The name of the source: `--log-size`, `/etc/holdfast/config.yaml`.
    origin: str
