"""`holdfast submit --platform kubernetes`: turn a job file into objects of a cluster."""
