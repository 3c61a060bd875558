"""Build the command and the environment of a task, and expand the names in them."""
