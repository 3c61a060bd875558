"""The agent of a node: the process that obeys the job's owner, which may run on another machine."""
