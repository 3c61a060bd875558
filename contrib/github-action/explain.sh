#!/usr/bin/env bash
# Explains the logs in $LOGS: annotation and summary of the step, outputs `class` and `rerun`, and the report as Markdown.
set -euo pipefail

command -v holdfast > /dev/null || python3 -m pip install --quiet "holdfast-run${VERSION:-}"
# Words are separated by blanks and line ends; holdfast itself expands globs.
set -f
read -r -d '' -a logs <<< "$LOGS" || true
if [ "${#logs[@]}" -eq 0 ]; then
  echo "::error title=holdfast::the input \`logs\` is empty: a log, a directory, a glob or an archive was expected"
  exit 1
fi
holdfast explain --format github -- "${logs[@]}"
holdfast explain --format markdown -- "${logs[@]}" > "$RUNNER_TEMP/holdfast-report.md" 2> /dev/null
holdfast explain --format json -- "${logs[@]}" 2> /dev/null | python3 -c '
import json, sys
report = json.load(sys.stdin)
print("class=%s\nrerun=%s" % (report["phrase"], report["rerun"]))
' >> "$GITHUB_OUTPUT"
