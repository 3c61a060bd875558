"""Build the Kubernetes objects of a job, and interpret the API server's records. Nothing is sent in this folder."""
