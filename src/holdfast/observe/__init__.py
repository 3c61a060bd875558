"""Observing: processes, logs, liveness, devices and checks become events. This package judges none of them."""
