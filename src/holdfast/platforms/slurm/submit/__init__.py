"""`holdfast submit --platform slurm`: a job file becomes a batch script; jobs in the queue."""
