"""`holdfast submit`: a job file becomes a batch script of Slurm, or objects of Kubernetes."""
