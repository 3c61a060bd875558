"""Policy, pure: the gang, recovery, isolation and placement."""
