"""How the verbs print: lines, tables and files."""
