"""The first exception in the logs, rank by rank."""

from _words import answer, case, exceptions, phrase_of

found = [(log["rank"], name) for log in case()["logs"] for name in exceptions(log["text"])]
answer(*((phrase_of(found[0][1]), [found[0][0]]) if found else ("Unexplained", [])))
