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
ours() {
    local log
    log=$(readlink "/proc/$1/fd/1" 2>/dev/null || true)
    here "$1" && [[ "$log" == */logs/*/*.log || "$log" == */train/*/seed*/verl.log ]]
}
end() { # SIGNAL PID SECONDS: true when the process has ended
    kill "-$1" "$2" 2>/dev/null || return 0
    timeout "$3" tail --pid="$2" -f /dev/null
}
# At the first SIGTERM a training job saves after its step, at the second it ends at once; veRL's own process hears SIGINT only.
for pid in $(pgrep -x parallelsearch || true); do
    if ours "$pid"; then
        echo "Stopping process $pid, a job that a killed run left behind."
        end TERM "$pid" 120 || end TERM "$pid" 60 || true
    fi
done
for pid in $(pgrep -f 'verl\.trainer\.main_ppo' || true); do
    if ours "$pid"; then
        echo "Stopping process $pid, a training job that a killed run left behind."
        end INT "$pid" 60 || true
    fi
done
echo "Removing the lock that a killed run left behind."
snakemake --unlock >/dev/null 2>&1
