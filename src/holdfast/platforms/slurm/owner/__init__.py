"""The part of the Slurm platform that runs in the owner's process: signals, requeues, lost nodes, the job's comment."""
