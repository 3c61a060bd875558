"""The program `python -m holdfast.platforms.kubernetes.client`: reads requests from stdin, writes answers to stdout."""

from holdfast.platforms.kubernetes.client.client_process import main

raise SystemExit(main())
