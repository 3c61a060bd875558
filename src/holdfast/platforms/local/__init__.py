"""The platform of one machine without a cluster: `holdfast submit` and the other commands ask this machine's core."""
