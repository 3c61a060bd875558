"""Texts that hold a secret, as logs have them, and the part that nobody may read."""

from __future__ import annotations

SECRETS = [
    ("Authorization: Bearer abc.def-ghi12345", "abc.def-ghi12345"),
    ("'Authorization': 'Basic dXNlcjpwYXNz'", "dXNlcjpwYXNz"),
    ("wandb login 0123456789abcdef0123456789abcdef01234567", "0123456789abcdef"),
    ("HF_TOKEN=hf_abcdefghijklmnop", "hf_abcdefghijklmnop"),
    ("remote: https://ghp_abcdefghijklmnopqrstuv@github.com/a/b", "ghp_abcdefghijklmnopqrstuv"),
    ("proxy http://user:pa55word@proxy:3128/", "pa55word"),
    (
        "https://b.s3.amazonaws.com/k?X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F2020&X-Amz-Signature=abcdef0123",
        "abcdef0123",
    ),
    ("https://acc.blob.core.windows.net/c/b?sv=2020&sig=Zm9vYmFy%3D", "Zm9vYmFy"),
    ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG", "wJalrXUtnFEMI"),
    ("key id AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLE"),
    ("{'api_key': 'abcdef123'}", "abcdef123"),
    ("password='hunter22'", "hunter22"),
    ("python t.py --api-key sk-abcdefghijklmnopqrst --lr 1", "sk-abcdefghij"),
    ("mysql --password hunter22 -u root", "hunter22"),
    ("jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc", "eyJzdWIiOiIxIn0"),
    ("-----BEGIN RSA PRIVATE KEY-----\nMIIEabc\n-----END RSA PRIVATE KEY-----", "MIIEabc"),
    ("Cookie: session=abcdef123456", "abcdef123456"),
    ('{"message": "{\\\\"api_key\\\\": \\\\"abcdef123\\\\"}"}', "abcdef123"),
    ("charge with sk_live_4eC39HqLyjWDarjtT1zdp7dc", "4eC39HqLyjWDarjtT1zdp7dc"),
    ("databricks dapi0123456789abcdef0123456789abcdef", "0123456789abcdef"),
    ("https://api.telegram.org/bot123456789:AAabcdefghijklmnopqrstuvwxyz0123456/send", "AAabcdefghij"),
    ("mail by SG.abcdefghijklmnopqrstuv.ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuv"),
]
