#!/bin/sh
# Writes the lock files anew: each package that CI and the image install, with its version and hashes. Needs uv and a package index.
#   requirements/lock.sh            newest versions that pyproject.toml allows
set -eu
cd "$(dirname "$0")/.."
lock() {
  uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-annotate --no-header --upgrade \
    --no-emit-index-url --no-emit-find-links pyproject.toml $(printf -- '--extra %s ' $2) -o "requirements/$1.tmp"
  { printf '# Locked %s by requirements/lock.sh: %s\n' "$(date -u +%Y-%m-%d)" "$2"; cat "requirements/$1.tmp"; } >"requirements/$1"
  rm "requirements/$1.tmp"
}
lock ci.txt "dev dev-lint dev-engines dev-libraries dev-web dev-bench docs"
lock image.txt "kubernetes data nvidia stacks"
