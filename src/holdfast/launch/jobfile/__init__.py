"""The job file: its keys, what is wrong with them, and the job that they describe."""
