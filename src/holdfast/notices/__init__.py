"""What goes to people and to other programs while a job runs, and at its end: a helper beside the run."""
