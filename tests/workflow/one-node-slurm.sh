#!/usr/bin/env bash
# A Slurm on this machine alone, to try profiles/slurm without a cluster.
#   one-node-slurm.sh up DIR     installs what is missing (Debian's packages), starts munge, slurmctld and slurmd
#   one-node-slurm.sh down DIR   stops what `up` started there
# Then: source DIR/environment
# Configuration, keys, state and logs all lie in DIR and every port is a free one, so another Slurm of the machine is left
# alone. Root is needed only where a package has to be installed. There is no accounting daemon (squeue knows the jobs of
# the last hour, DIR/jobs.txt all that ended), no control group and no systemd.
# Environment: NODES (1; several are played by as many slurmd of this machine), NODE_CPUS (8), NODE_MEM_MB (16000),
# KILL_WAIT (20 s between SIGTERM and SIGKILL).
# Each node says it has two GPUs, which are no real ones.
set -euo pipefail

command=${1:-} dir=${2:-}
if [[ ! $command =~ ^(up|down)$ || -z $dir ]]; then
    sed -n '2,12s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
nodes=${NODES:-1} cpus=${NODE_CPUS:-8} memory=${NODE_MEM_MB:-16000}
host=$(hostname -s) user=$(id -un)
PATH=$PATH:/usr/sbin:/sbin

fail() { echo "one-node-slurm: $1" >&2; exit 1; }

alive() { # PIDFILE NAME: the process that PIDFILE names runs, and is a NAME
    local pid
    pid=$(cat "$1" 2>/dev/null) && [[ -n $pid && $(cat "/proc/$pid/comm" 2>/dev/null) == "$2"* ]]
}

stop() { # PIDFILE NAME
    if alive "$1" "$2"; then
        local pid
        pid=$(cat "$1")
        kill "$pid"
        timeout 20 tail --pid="$pid" -f /dev/null || kill -9 "$pid" || true
    fi
    rm -f "$1"
}

wait_for() { # WHAT COMMAND...
    local what=$1
    shift
    for _ in $(seq 150); do
        if "$@" >/dev/null 2>&1; then return; fi
        sleep 0.2
    done
    tail -n 20 "$dir"/*.log >&2 || true
    fail "$what is not ready after 30 s; its log is in $dir."
}

if [[ $command == down ]]; then
    for file in "$dir"/slurmd-*.pid; do stop "$file" slurmd; done
    stop "$dir/slurmctld.pid" slurmctld
    stop "$dir/munged.pid" munged
    exit
fi

# -- packages ----------------------------------------------------------------------------------------------------------

missing=()
for pair in munged:munge sbatch:slurm-client slurmctld:slurmctld slurmd:slurmd; do
    command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
done
if ((${#missing[@]})); then
    command -v apt-get >/dev/null || fail "install ${missing[*]} (those are Debian's names; this machine has no apt-get)."
    ((EUID == 0)) || fail "install the packages first: sudo apt-get install ${missing[*]}"
    echo "Installing ${missing[*]}"
    apt-get update -qq >/dev/null
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null 2>&1 ||
        fail "apt-get could not install ${missing[*]}."
fi

# -- configuration -----------------------------------------------------------------------------------------------------

umask 022
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
((${#dir} < 80)) || fail "$dir is too long a name: sockets lie in it; choose a shorter one."
mkdir -p "$dir/state" "$dir/spool"
chmod a+x "$dir" # munge wants its socket within the reach of all; its key is not
export SLURM_CONF=$dir/slurm.conf

# One comma-separated list of free ports, kept until `down`, so that `up` again changes nothing.
[[ -s $dir/ports ]] || python3 - $((nodes + 1)) >"$dir/ports" <<'PYTHON'
import socket, sys

held = [socket.create_server(("127.0.0.1", 0)) for _ in range(int(sys.argv[1]))]
print(*(server.getsockname()[1] for server in held))
PYTHON
read -r -a ports <"$dir/ports"
((${#ports[@]} == nodes + 1)) || fail "$dir was made for another number of nodes: take it down and remove it first."

# Snakemake's executor takes every SLURM_ variable from a job's step, SLURM_CONF too: this srun puts it back.
mkdir -p "$dir/bin"
printf '#!/bin/sh\nSLURM_CONF=%s exec %s "$@"\n' "$SLURM_CONF" "$(PATH=${PATH//"$dir/bin":/} command -v srun)" >"$dir/bin/srun"
chmod +x "$dir/bin/srun"
printf 'export SLURM_CONF=%s PATH=%s:$PATH\n' "$SLURM_CONF" "$dir/bin" >"$dir/environment"

[[ -s $dir/munge.key ]] || (umask 077 && head -c 1024 /dev/urandom >"$dir/munge.key")
printf 'Name=gpu Type=none File=/dev/null,/dev/zero\n' >"$dir/gres.conf" # two devices that every machine has
printf 'CgroupAutomount=no\n' >"$dir/cgroup.conf"
cat >"$dir/slurm.conf" <<CONF
ClusterName=parallelsearch
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=${ports[0]}
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
AuthInfo=socket=$dir/munge.socket
CredType=cred/munge
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool/%n
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd-%n.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd-%n.log
SwitchType=switch/none
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
ReturnToService=2
MinJobAge=3600
KillWait=${KILL_WAIT:-20}
SlurmdTimeout=120
SchedulerParameters=sched_min_interval=0,bf_interval=2,batch_sched_delay=0
JobRequeue=1
GresTypes=gpu
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/filetxt
JobCompLoc=$dir/jobs.txt
$(for ((node = 1; node <= nodes; node++)); do
    echo "NodeName=node$node NodeHostname=$host NodeAddr=127.0.0.1 Port=${ports[node]} CPUs=$cpus Boards=1" \
        "SocketsPerBoard=1 CoresPerSocket=$cpus ThreadsPerCore=1 RealMemory=$memory Gres=gpu:none:2 State=UNKNOWN"
done)
PartitionName=cpu Nodes=ALL Default=YES MaxTime=7-00:00:00 DefaultTime=00:10:00 DefMemPerCPU=500 State=UP
PartitionName=gpu Nodes=ALL MaxTime=7-00:00:00 DefaultTime=00:10:00 DefMemPerCPU=500 State=UP
CONF

# -- daemons -----------------------------------------------------------------------------------------------------------

alive "$dir/munged.pid" munged ||
    munged --key-file="$dir/munge.key" --socket="$dir/munge.socket" --pid-file="$dir/munged.pid" \
        --log-file="$dir/munged.log" --seed-file="$dir/munge.seed" >/dev/null
wait_for munge munge --no-input --socket="$dir/munge.socket"
alive "$dir/slurmctld.pid" slurmctld || slurmctld
wait_for slurmctld sh -c 'scontrol ping | grep -q UP'
for ((node = 1; node <= nodes; node++)); do
    alive "$dir/slurmd-node$node.pid" slurmd || slurmd -N "node$node"
done
all_idle() { [[ $(sinfo --noheader --Node --partition=cpu --format=%T | grep -cE '^(idle|mixed|allocated)$') == "$nodes" ]]; }
wait_for slurmd all_idle
timeout 60 srun --nodes="$nodes" --ntasks="$nodes" --time=1 --mem=50 true || fail "srun does not work; the logs are in $dir."
sinfo --format='%P %a %l %D %T %c %m %G'
echo "source $dir/environment"
