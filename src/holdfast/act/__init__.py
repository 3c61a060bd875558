"""Out: actions are performed here, idempotently."""
