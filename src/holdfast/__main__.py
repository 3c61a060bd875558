"""`python -m holdfast` is `holdfast`."""

from holdfast.show.cli import main

main()
