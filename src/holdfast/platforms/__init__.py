"""The nodes of a job: one module for each way to get them."""
