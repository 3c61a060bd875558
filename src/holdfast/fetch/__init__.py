"""Downloads data and code for a job, once per node. A download is either complete or absent."""
