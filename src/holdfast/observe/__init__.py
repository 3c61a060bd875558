"""In: processes, logs, liveness, devices and checks become events. Nothing is judged here."""
