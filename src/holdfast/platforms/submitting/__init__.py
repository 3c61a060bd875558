"""`holdfast submit`: the options that were typed, before a platform judges them."""
