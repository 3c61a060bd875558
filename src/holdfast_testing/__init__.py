"""Tools for the tests: the simulation, its witness and planted bugs, oracles, the lab, fuzzers.

They are in no wheel.
"""
