"""What a task gets from its runtime: its command, its environment, what stands in both."""
