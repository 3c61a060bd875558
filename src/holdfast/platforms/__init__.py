"""Where jobs run: ssh, Slurm and Kubernetes, a folder each, and the interface that a platform implements."""
