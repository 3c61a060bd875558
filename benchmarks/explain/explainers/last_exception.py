"""The last exception in the logs, as a reader takes it who scrolls to the end."""

from _words import answer, case, exceptions, phrase_of

found = [(log["rank"], name) for log in case()["logs"] for name in exceptions(log["text"])]
answer(*((phrase_of(found[-1][1]), [found[-1][0]]) if found else ("Unexplained", [])))
