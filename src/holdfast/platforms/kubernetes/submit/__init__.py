"""`holdfast submit --platform kubernetes`: a job file becomes objects of a cluster."""
