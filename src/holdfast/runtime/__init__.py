"""The parts of a task's runtime: its command, its environment, and the values of names in both."""
