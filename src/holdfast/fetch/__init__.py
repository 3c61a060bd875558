"""Data and code from elsewhere: once a node, the whole of it or nothing."""
