"""Decides what follows a failed attempt, from the restart budgets and from the signs of progress. Pure."""
