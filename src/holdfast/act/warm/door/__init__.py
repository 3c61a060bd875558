"""The first directory on the nursery's module search path. It must contain only `sitecustomize`."""
