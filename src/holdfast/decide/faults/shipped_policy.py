"""The default rules about faults: the levels in the built-in catalogues, and the built-in rules."""

from __future__ import annotations

import functools

from holdfast.catalogue.fault_codes import rules_text, shipped_codes, vendors
from holdfast.decide.faults.fault_policy import Levels, Policy, Rules, catalogue_levels, merged, policy_of
from holdfast.decide.faults.holdfast_format import read_rules


@functools.cache
def shipped_levels() -> Levels:
    """Return the levels in the `faultCode.json` that Ascend ships."""
    rows = {key: row for key, row in shipped_codes().items() if row.remedy is not None}
    return Levels(
        levels={key: row.remedy for key, row in rows.items() if row.remedy is not None},
        spelled={key: row.code for key, row in rows.items()},
    )


@functools.cache
def shipped_rules() -> Rules:
    """Return the rules in the `faultCustomization.json` that Ascend ships."""
    return read_rules(rules_text("ascend").encode())


@functools.cache
def default_rules() -> Rules:
    """Return the rules for the devices of all vendors."""
    frequency, duration, spelled = {}, {}, {}
    for vendor in vendors():
        text = rules_text(vendor)
        if text:
            rules = read_rules(text.encode())
            frequency.update(rules.frequency)
            duration.update(rules.duration)
            spelled.update(rules.spelled)
    return Rules(frequency=frequency, duration=duration, spelled=spelled, grace=shipped_rules().grace)


@functools.cache
def default_policy() -> Policy:
    """Return the policy that applies if the user supplies no file of levels or rules."""
    return policy_of(catalogue_levels(), default_rules())


def with_catalogue(levels: Levels, *, of_seed: bool) -> Levels:
    """Merge a file's levels over the built-in ones. `of_seed`: the file is Ascend's, so it replaces the whole built-in
    list of Ascend.
    """
    return merged(catalogue_levels(frozenset({"ascend"}) if of_seed else frozenset()), levels)
