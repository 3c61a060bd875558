"""What runs beside an attempt's workers: hooks, daemons, sshd."""
