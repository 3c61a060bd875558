"""Questions of the owner to all nodes: links, samples of ranks, and one answer from many. Pure."""
