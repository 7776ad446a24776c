#!/bin/bash
# A Snakemake that was killed (kill -9, power cut) leaves its lock behind. Removes it, but only when no Snakemake runs in
# this folder any more.
set -euo pipefail
compgen -G ".snakemake/locks/*" >/dev/null || exit 0
for pid in $(pgrep -x snakemake || true); do
    if [ "$(readlink "/proc/$pid/cwd" 2>/dev/null)" = "$PWD" ]; then
        echo "Another snakemake (process $pid) is running in this folder; wait for it, or stop it." >&2
        exit 1
    fi
done
echo "Removing the lock that a killed run left behind."
snakemake --unlock >/dev/null 2>&1
