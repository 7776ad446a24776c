"""Ray on all nodes of a Slurm job: the head on this one, the others through srun, all of them ended with the job.

    python -m parallelsearch.training.verl.ray_cluster ADDRESS NODES GPUS SECONDS

waits until the Ray cluster at ADDRESS has NODES nodes with GPUS GPUs each, and prints what it has.
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from parallelsearch.config import TrainingConfig
from parallelsearch.errors import ResourceError
from parallelsearch.training.process.child_process import log_tail, running_child
from parallelsearch.training.process.devices import RAY_ADDRESS, node_count
from parallelsearch.training.verl.config import LOGICAL_CPUS, OBJECT_STORE_BYTES

START_SECONDS = 600
# A nested srun would take over the geometry of the step that it is called from; the job's identity is all it needs.
KEPT = ("SLURM_JOB_ID", "SLURM_CONF")
BLOCKED = (
    "import os, signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, [15, 10]); os.execvp(sys.argv[1], sys.argv[1:])"
)


@contextmanager
def ray_cluster(training: TrainingConfig, folder: Path, environment: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Yields `environment` with RAY_ADDRESS of a Ray cluster over the job's nodes; logs go to `folder`/ray-*.log.

    On one node, and where the user names a cluster (RAY_ADDRESS), nothing is started. Raises ResourceError when the
    nodes do not all join in time, each with training.gpus_per_node GPUs.
    """
    nodes = node_count(training)
    if nodes == 1 or environment.get(RAY_ADDRESS):
        yield dict(environment)
        return
    from ray.util import get_node_ip_address

    address = f"{get_node_ip_address()}:{_free_port()}"
    with ExitStack() as stack:
        # A folder of its own: in Ray's default one a job on one node would find this cluster and join it. A short name:
        # sockets lie in it.
        own = stack.enter_context(TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True))
        for role, command, log in (
            ("head", _head(address, training, own), folder / "ray-head.log"),
            ("others", _others(address, training, nodes - 1), folder / "ray-nodes.log"),
        ):
            child = environment if role == "head" else _outside_the_step(environment)
            stack.enter_context(running_child(command, log, child, shielded=True))
        _require_cluster(address, nodes, training, folder, environment)
        yield {**environment, RAY_ADDRESS: address}


def _head(address: str, training: TrainingConfig, own: str) -> list[str]:
    host, _, port = address.partition(":")
    where = [f"--node-ip-address={host}", f"--port={port}", f"--temp-dir={own}"]
    return [*_start(training), "--head", *where, "--include-dashboard=false"]


def _others(address: str, training: TrainingConfig, count: int) -> list[str]:
    """One step on each other node of the job, beside the one that this process runs in."""
    step = ["srun", "--overlap", f"--nodes={count}", f"--ntasks={count}", "--mem=0"]
    step += ["--kill-on-bad-exit=1", "--quit-on-interrupt"]  # one SIGINT ends the step
    step += [
        f"--exclude={os.environ['SLURMD_NODENAME']}",
        f"--cpus-per-task={os.environ.get('SLURM_CPUS_PER_TASK', 1)}",
    ]
    step += [f"--gres=gpu:{training.gpus_per_node}"] if training.device == "cuda" else []
    # Slurm starts these itself, so the shield of child_process does not cover them.
    return [*step, sys.executable, "-c", BLOCKED, *_start(training), f"--address={address}"]


def _start(training: TrainingConfig) -> list[str]:
    """`ray start` in the foreground. On CPUs a rank is a logical GPU, and several share the machine's cores."""
    ray = Path(sys.executable).with_name("ray")
    command = [str(ray), "start", "--block", "--disable-usage-stats", f"--num-gpus={training.gpus_per_node}"]
    if training.device == "cpu":
        command += [f"--num-cpus={LOGICAL_CPUS}", f"--object-store-memory={OBJECT_STORE_BYTES}"]
    # Ports that are fixed by default would keep two jobs, or two nodes of a test, off one machine.
    return [*command, "--dashboard-agent-listen-port=0", "--dashboard-agent-grpc-port=0", "--metrics-export-port=0"]


def _outside_the_step(environment: Mapping[str, str]) -> dict[str, str]:
    prefixes = ("SLURM_", "SRUN_", "SBATCH_")
    return {name: value for name, value in environment.items() if name in KEPT or not name.startswith(prefixes)}


def _require_cluster(
    address: str, nodes: int, training: TrainingConfig, folder: Path, environment: Mapping[str, str]
) -> None:
    gpus = str(training.gpus_per_node)
    command = [sys.executable, "-m", __name__, address, str(nodes), gpus, str(START_SECONDS)]
    waited = subprocess.run(command, env=dict(environment), capture_output=True, text=True)
    if waited.returncode:
        logs = "\n".join(log_tail(folder / name, 8) for name in ("ray-head.log", "ray-nodes.log"))
        raise ResourceError(
            f"Ray has {waited.stdout.strip() or 'no nodes'} after {START_SECONDS} s, but training.nodes is {nodes} and"
            f" training.gpus_per_node {gpus}; see {folder}/ray-*.log, which end:\n{logs}"
        )
    print(f"Ray has {waited.stdout.strip()}", flush=True)


def _free_port() -> int:
    with socket.create_server(("", 0)) as server:
        return int(server.getsockname()[1])


def _wait(address: str, nodes: int, gpus: int, seconds: float) -> int:
    """Exit code 0 once the cluster is complete."""
    import ray

    end, found = time.monotonic() + seconds, "no nodes"
    while time.monotonic() < end:
        try:
            if not ray.is_initialized():
                ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
            alive = [node for node in ray.nodes() if node["Alive"]]
            of_each = [int(node["Resources"].get("GPU", 0)) for node in alive]
            found = f"{len(alive)} nodes with {', '.join(map(str, of_each))} GPUs"
            if of_each == [gpus] * nodes:
                print(found)
                return 0
        except Exception as error:  # the head may not listen yet
            found = f"no nodes ({' '.join(str(error).split())[:200]})"
        time.sleep(1)
    print(found)
    return 1


if __name__ == "__main__":
    sys.exit(_wait(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])))
