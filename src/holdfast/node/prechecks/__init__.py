"""Pre-checks in processes of their own: planned, run in rounds before an attempt, and watched during a job."""
