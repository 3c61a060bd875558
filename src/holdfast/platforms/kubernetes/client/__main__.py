"""`python -m holdfast.platforms.kubernetes.client`: requests come on standard input, answers go to standard output."""

from holdfast.platforms.kubernetes.client.client_process import main

raise SystemExit(main())
