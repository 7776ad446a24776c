"""Policies: the warm start of each seed, then one veRL job for each reward arm and seed; or a packaged model.

INPUTS   config/policies/NAME.yaml (export_policy); the facts of GeoWorld's training split (warm start);
         training questions, the index of their corpus (train)
OUTPUTS  {results}/policies/{{policy}}/                           a packaged model in Hugging Face layout
         {results}/warm_start/seed{{seed}}/done.json      (beside it: policy/, metrics.jsonl, config.yaml)
         {results}/train/{{arm}}/seed{{seed}}/done.json   (beside it: policy/, metrics.jsonl, config.yaml, checkpoints/)
NOTE     Only the final marker is an output. Snakemake deletes the outputs of a job that failed or was killed, and
         checkpoints must outlive that: the next run goes on from the last one.
         While a job writes to a run's folder, {results}/.../seed{{seed}}.lock names it: no second one does, and one that
         Slurm was given twice waits for the first. `exec`: a shell between would end at Slurm's SIGTERM, and the job with it.
         An arm's settings are its own: another lambda_d of one arm changes the params of that arm's job alone.
"""


rule export_policy:
    input:
        "config/policies/{policy}.yaml",
    output:
        ensure(R.policy("{policy}") / "manifest.json", non_empty=True),
    log:
        R.log("export_policy", "{policy}"),
    benchmark:
        R.benchmark("export_policy", "{policy}")
    conda:
        CPU_ENV
    resources:
        mem_mb=4000,
        runtime=60,
    params:
        folder=subpath(output[0], parent=True),
    message:
        "Preparing the language model {wildcards.policy}"
    shell:
        "parallelsearch policy export {wildcards.policy:q} {params.folder:q} > {log:q} 2>&1"


rule warm_start:
    input:
        R.geoworld() / "facts.train.json",
    output:
        ensure(R.warm_start("{seed}") / "done.json", non_empty=True),
    log:
        R.log("warm_start", "seed{seed}"),
    benchmark:
        R.benchmark("warm_start", "seed{seed}")
    conda:
        CPU_ENV
    threads: CORES
    resources:
        mem_mb=lambda wildcards, attempt: NEEDS.warm_start_mb(attempt),
        runtime=lambda wildcards, attempt: NEEDS.warm_start_minutes(attempt),
        cpus_per_task=NEEDS.policy_cores(),
        slurm_extra=lambda wildcards: NEEDS.after_earlier_job(R.warm_start(wildcards.seed)),
    params:
        folder=str(R.warm_start("{seed}")),
        settings=lambda wildcards: PLAN.warm_start_settings(),
    message:
        "Warm start of seed {wildcards.seed}; progress: {log}"
    shell:
        "exec parallelsearch warm-start {params.folder:q} --world {input:q}"
        " --seed {wildcards.seed:q} --settings {params.settings:q} > {log:q} 2>&1"


rule train:
    input:
        questions=lambda wildcards: map(PLAN.questions, PLAN.training_sets(wildcards.arm)),
        index=lambda wildcards: PLAN.index(PLAN.training_corpus(wildcards.arm)) / "manifest.json",
        policy=lambda wildcards: PLAN.initial_marker(wildcards.seed),
        simulator=lambda wildcards: [folder / "manifest.json" for folder in PLAN.simulator(wildcards.arm)],
    output:
        ensure(R.train("{arm}", "{seed}") / "done.json", non_empty=True),
    log:
        R.log("train", "{arm}.seed{seed}"),
    benchmark:
        R.benchmark("train", "{arm}.seed{seed}")
    conda:
        GPU_ENV if PLAN.study.training.device == "cuda" else CPU_ENV
    threads: CORES
    resources:
        mem_mb=lambda wildcards, attempt: NEEDS.train_mb(wildcards.arm, attempt),
        runtime=lambda wildcards: NEEDS.train_minutes(wildcards.arm),
        cpus_per_task=lambda wildcards: NEEDS.train_cores(wildcards.arm),
        slurm_extra=lambda wildcards: NEEDS.after_earlier_job(R.train(wildcards.arm, wildcards.seed)),
        nodes=lambda wildcards: NEEDS.nodes(wildcards.arm),
        tasks=lambda wildcards: NEEDS.tasks(wildcards.arm),
        gpus_per_node=lambda wildcards: NEEDS.gpus(wildcards.arm),
        gres=lambda wildcards: NEEDS.gres(wildcards.arm),  # of each node, where `gpu` would be of all nodes together
    params:
        folder=str(R.train("{arm}", "{seed}")),
        policy=lambda wildcards: PLAN.initial_policy(wildcards.seed),
        index=lambda wildcards: PLAN.index(PLAN.training_corpus(wildcards.arm)),
        questions=lambda wildcards, input: [word for path in input.questions for word in ("--questions", path)],
        simulator=lambda wildcards: [
            word for path in PLAN.simulator(wildcards.arm) for word in ("--simulator", str(path))
        ],
        settings=lambda wildcards: PLAN.train_settings(wildcards.arm),
    message:
        "Training {wildcards.arm}, seed {wildcards.seed} (nodes: {resources.nodes}, GPUs of each: {resources.gpus_per_node}); progress: {log}"
    shell:
        'export PATH="${{PARALLELSEARCH_TRAIN_PATH:-$PATH}}"; '
        "exec parallelsearch train {params.folder:q} --arm {wildcards.arm:q} --seed {wildcards.seed:q}"
        " --policy {params.policy:q} --index {params.index:q} {params.questions:q} {params.simulator:q}"
        " --settings {params.settings:q} > {log:q} 2>&1"
