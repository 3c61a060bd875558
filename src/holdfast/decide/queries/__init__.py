"""Requests of the owner to all nodes: link measurements and samples of ranks, and the merging of the answers. Pure."""
