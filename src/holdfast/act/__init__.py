"""Acting: this package performs actions; performing one twice does no harm."""
