"""What belongs to no stage: the merged configuration, files from the net, and the shape of wildcards.

INPUTS   the configuration; the registry of downloads in it (corpora.*.file, datasets.*.splits.*)
OUTPUTS  {results}/config.yaml        the study and all its arms, complete, as they were planned (do not edit)
         data/...                     raw files, downloaded when absent and checked against their SHA-256
"""

import re
import shlex
import shutil
import signal
import sys

# `.venv/bin/snakemake` without an activated environment: the jobs find the commands beside the running Python.
if shutil.which("parallelsearch") is None:
    shell.prefix(f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH; ")

# Without a cluster: peak memory of what runs at the same time, in MB (each rule declares its own need). It cannot stand in
# profiles/default, which is loaded after --profile slurm and would cut down every job there. --resources mem_mb=… overrules it.
if workflow.is_main_process and workflow.nodes is None and workflow.global_resources.get("mem_mb").value is None:
    workflow.register_resource("mem_mb", 9500)

# Slurm's warning before a time limit (--signal=USR1@300) goes to every process of a job. This one leaves it to the command.
signal.signal(signal.SIGUSR1, signal.SIG_IGN)

# What a job that can use every core takes. Inside a Slurm job these are the allocated ones, also where nothing pins it to them.
CORES = min(workflow.cores or 1, int(os.environ.get("SLURM_CPUS_PER_TASK", workflow.cores or 1)))

# With `--sdm conda` jobs run in these environments; without it, in the one that Snakemake was started from.
CPU_ENV = str(Path(workflow.basedir) / "envs" / "cpu.yaml")
GPU_ENV = str(Path(workflow.basedir) / "envs" / "gpu.yaml")
REPORT_ENV = str(Path(workflow.basedir) / "envs" / "report.yaml")

# Without conda, jobs on GPUs find their commands in the environment that environments.gpu names. Through the environment of
# the job, not its params: where a job runs is no part of its result.
for STAGE in (PLAN.study.training, PLAN.study.evaluation):
    if PLAN.study.environments.gpu and STAGE.device == "cuda":
        BIN = Path(PLAN.study.environments.gpu).absolute() / "bin"
        VARIABLE = "TRAIN_PATH" if STAGE is PLAN.study.training else "EVALUATE_PATH"
        os.environ[f"PARALLELSEARCH_{VARIABLE}"] = os.pathsep.join([str(BIN), *os.get_exec_path()])

if PLAN.study.environments.container:

    container: PLAN.study.environments.container


wildcard_constraints:
    arm=r"[^/]+",
    seed=r"\d+",
    dataset=r"[^/.]+",
    split=r"[^/.]+",
    corpus=r"[^/.]+",
    encoder=r"[^/]+",
    shard=r"\d+",
    shards=r"\d+",
    download="|".join(map(re.escape, PLAN.downloads)) or r"(?!)",


rule study_config:
    output:
        ensure(R.config(), non_empty=True),
    log:
        R.log("study_config"),
    benchmark:
        R.benchmark("study_config")
    localrule: True
    conda:
        CPU_ENV
    params:
        study=lambda wildcards: PLAN.merged(),
    message:
        "Saving the merged configuration to {output}"
    shell:
        "parallelsearch config write {output:q} --settings {params.study:q} > {log:q} 2>&1"


rule download:
    output:
        ensure("{download}", non_empty=True),
    log:
        R.log("download", "{download}"),
    benchmark:
        R.benchmark("download", "{download}")
    localrule: True  # compute nodes often have no way to the net
    conda:
        CPU_ENV
    params:
        url=lambda wildcards: PLAN.downloads[wildcards.download].url,
        sha256=lambda wildcards: PLAN.downloads[wildcards.download].sha256 or "unknown",
    message:
        "Downloading {wildcards.download} from {params.url}"
    shell:
        "parallelsearch fetch {params.url:q} {output:q} --sha256 {params.sha256:q} > {log:q} 2>&1"
