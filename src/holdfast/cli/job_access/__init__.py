"""Jobs in a queue, in a cluster or at another node, and the limit of how many jobs are kept."""
