"""The decisions, all pure: the gang, recovery, isolation and placement."""
