"""Which nodes there are: one module for each way to have them."""
