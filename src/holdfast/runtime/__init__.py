"""The command and the environment of a task, and the values of the names in both."""
