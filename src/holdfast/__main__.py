"""Makes `python -m holdfast` the same as `holdfast`."""

from holdfast.cli import main

main()
