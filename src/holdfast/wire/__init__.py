"""How the owner of a job and its nodes reach each other."""
