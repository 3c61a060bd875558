"""Device faults of this machine during a run: their sources, the shared log, their meaning for the job, and resets."""
