"""Slurm as the owner sees it during a job: signals, requeues, lost nodes, the job's comment."""
