"""Pre-checks in separate processes: planned, run in rounds before an attempt, and repeated during a job."""
