"""Where jobs run: ssh, Slurm and Kubernetes, a folder each, and what a platform must answer."""
