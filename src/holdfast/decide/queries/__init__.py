"""Requests of the owner to all nodes (link measurements, samples of ranks), and the merging of their answers. Pure."""
