"""Processes beside an attempt's workers: hooks, daemons, sshd."""
