"""`holdfast logs`: logs on this machine, on other nodes, and logs that grow."""
