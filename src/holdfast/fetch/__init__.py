"""Downloads data and code, once per node; a download is complete or absent."""
