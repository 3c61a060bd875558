"""`python -m holdfast.cluster.kubernetes.client`: requests come on standard input, answers go to standard output."""

from holdfast.cluster.kubernetes.client.serving import main

raise SystemExit(main())
