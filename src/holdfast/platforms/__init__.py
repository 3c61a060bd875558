"""The platforms that run jobs: ssh, Slurm and Kubernetes, one folder each, and the interface that each implements."""
