"""Downloads of data and code: once per node, and the whole of it or nothing."""
