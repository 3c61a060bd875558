"""Build the Kubernetes objects of a job, and parse the API server's records. This folder sends nothing."""
