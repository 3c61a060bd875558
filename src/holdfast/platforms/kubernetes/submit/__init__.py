"""Submit jobs to Kubernetes (`holdfast submit --platform kubernetes`): turn a job file into objects in a cluster."""
