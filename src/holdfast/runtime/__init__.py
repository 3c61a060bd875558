"""What the runtime gives a task: its command, its environment, and the values of names in both."""
