"""What one machine does for a job: its workers, evidence, devices, pre-checks and sidecars."""
