"""The agent of a node: the process that obeys an owner which may run on another machine."""
