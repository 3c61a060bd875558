"""Tools of the tests: the simulation, its witness and planted bugs, oracles, the lab, fuzzers. No wheel has them."""
