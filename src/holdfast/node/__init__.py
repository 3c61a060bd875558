"""One machine's part in a job: its workers, evidence, devices, pre-checks and sidecars."""
