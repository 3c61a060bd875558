"""Decides which node hosts the job's owner if the user types the same command on every node."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from holdfast.errors import BadUsage
from holdfast.model.noun_base import Noun
from holdfast.wire.addresses import Interface, addresses_of, interfaces, is_loopback, plain


class OwnerPlacement(Noun, frozen=True, kw_only=True):
    """Says whether this machine hosts the owner, and why. If the owner's port is in use already, this machine joins the
    owner at that port."""

    hosts: bool
    #: The reason as a clause: `fd00::2 is an address of its eth0`.
    why: str
    #: True if the endpoint's host name could be resolved to an address.
    resolved: bool = True


def part(
    host: str,
    addresses: Sequence[str],
    *,
    is_host: bool | None,
    node_rank: int | None,
    machine: str,
    found: Iterable[Interface],
) -> OwnerPlacement:
    """Decide whether this machine hosts the owner.

    `is_host` decides if it is set, then the endpoint's address if it is known, then `node_rank`: rank 0 hosts the
    owner. `addresses`: the addresses to which the endpoint's host resolves on this machine. `machine`: this machine's
    name. `found`: its network interfaces.
    """
    if is_host is not None:
        return OwnerPlacement(hosts=is_host, why=f"is_host={int(is_host)} says so")
    for interface in found:
        if interface.address in addresses:
            return OwnerPlacement(hosts=True, why=f"{interface.address} is an address of its {interface.name}")
    if any(is_loopback(address) for address in (host, *addresses)):
        return OwnerPlacement(hosts=True, why=f"{host} is this machine itself")
    if plain(host) in (machine, machine.partition(".")[0]):
        return OwnerPlacement(hosts=True, why=f"{host} is its name")
    if node_rank == 0:
        return OwnerPlacement(hosts=True, why="its --node-rank is 0")
    return OwnerPlacement(hosts=False, why=f"{host} is no address of this machine")


def part_here(host: str, *, is_host: bool | None, node_rank: int | None, must_resolve: bool = True) -> OwnerPlacement:
    """Call `part` for this machine. Raises `BadUsage` if the decision needs the endpoint's address and its name cannot
    be resolved.

    `must_resolve` false: do not raise for such a name, and decide without its addresses.
    `is_host`, `node_rank`: the typed values, or None.
    """
    machine = os.uname().nodename
    try:
        found = interfaces()
    except OSError:
        found = ()  # without netlink, as in some sandboxes, only names and ranks can decide

    def decide(addresses: Sequence[str]) -> OwnerPlacement:
        return part(host, addresses, is_host=is_host, node_rank=node_rank, machine=machine, found=found)

    try:
        return decide(addresses_of(host))
    except BadUsage:
        own = decide(())
        if own.hosts or not must_resolve:
            return own
        if is_host is None and node_rank is None:
            raise
        # A Kubernetes Service has no address before its first pod exists. So other nodes retry until the owner's name
        # resolves.
        return OwnerPlacement(hosts=False, why=f"{host} cannot be resolved here", resolved=False)
