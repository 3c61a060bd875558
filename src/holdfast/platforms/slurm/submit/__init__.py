"""`holdfast submit --platform slurm` turns a job file into a batch script. `slurm_queue` reads Slurm's queue."""
