#!/bin/bash
# A Snakemake that was killed (kill -9, power cut) leaves its lock behind, and perhaps jobs that go on without it. Stops those
# jobs (they would write beside their successors) and removes the lock, but only when no Snakemake runs in this folder.
set -euo pipefail
compgen -G ".snakemake/locks/*" >/dev/null || exit 0

here() { [ "$(readlink "/proc/$1/cwd" 2>/dev/null)" = "$PWD" ]; }

for pid in $(pgrep -x snakemake || true); do
    if here "$pid"; then
        echo "Another snakemake (process $pid) is running in this folder; wait for it, or stop it." >&2
        exit 1
    fi
done
# A job of the workflow prints to its log, and veRL to the log in its run's folder; what somebody started by hand does not.
for pid in $(pgrep -x parallelsearch || true) $(pgrep -f 'verl\.trainer\.main_ppo' || true); do
    log=$(readlink "/proc/$pid/fd/1" 2>/dev/null || true)
    if here "$pid" && [[ "$log" == */logs/*/*.log || "$log" == */train/*/seed*/verl.log ]]; then
        echo "Stopping process $pid, a job that a killed run left behind."
        kill "$pid" && timeout 60 tail --pid="$pid" -f /dev/null || true
    fi
done
echo "Removing the lock that a killed run left behind."
snakemake --unlock >/dev/null 2>&1
