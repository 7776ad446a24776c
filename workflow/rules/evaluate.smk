"""Every arm (and the warm-started policy) answers every question set; with evaluation.judge, a model judges the answers.

INPUTS   done.json (of a packaged model: manifest.json) of the policy, the questions, the index of their corpus
OUTPUTS  {results}/eval/{{arm}}/seed{{seed}}/{{dataset}}.{{split}}/episodes.parquet   one row an episode
         {results}/eval/{{arm}}/seed{{seed}}/{{dataset}}.{{split}}.published/episodes.parquet   the same as published
         {results}/eval/{{arm}}/seed{{seed}}/{{dataset}}.{{split}}.unlimited/episodes.parquet   the same under larger limits
         {results}/eval/{{arm}}/seed{{seed}}/{{dataset}}.{{split}}/judgements.parquet
         {results}/judge/replies.db                                                     every reply of the judge, once
"""


rule evaluate:
    input:
        policy=lambda wildcards: PLAN.policy_marker(wildcards.arm, wildcards.seed),
        questions=R.questions("{dataset}", "{split}"),
        index=lambda wildcards: PLAN.index(PLAN.corpus_of(f"{wildcards.dataset}.{wildcards.split}")) / "manifest.json",
    output:
        ensure(R.episodes("{arm}", "{seed}", "{dataset}.{split}"), non_empty=True),
    log:
        R.log("evaluate", "{arm}.seed{seed}.{dataset}.{split}"),
    benchmark:
        R.benchmark("evaluate", "{arm}.seed{seed}.{dataset}.{split}")
    conda:
        GPU_ENV if PLAN.study.evaluation.device == "cuda" else CPU_ENV
    threads: 16 if PLAN.study.evaluation.device == "cuda" else 1
    resources:
        mem_mb=lambda wildcards, attempt: NEEDS.evaluate_mb(f"{wildcards.dataset}.{wildcards.split}", attempt),
        runtime=lambda wildcards, attempt: NEEDS.evaluate_minutes(f"{wildcards.dataset}.{wildcards.split}", attempt),
        cpus_per_task=NEEDS.evaluate_cores(),
        gpu=1 if PLAN.study.evaluation.device == "cuda" else 0,
    params:
        policy=lambda wildcards: PLAN.policy(wildcards.arm, wildcards.seed),
        index=lambda wildcards: PLAN.index(PLAN.corpus_of(f"{wildcards.dataset}.{wildcards.split}")),
        settings=lambda wildcards: PLAN.evaluate_settings(wildcards.arm),
    message:
        "{wildcards.arm}, seed {wildcards.seed}, answers {wildcards.dataset}.{wildcards.split} (GPUs: {resources.gpu}); progress: {log}"
    shell:
        'export PATH="${{PARALLELSEARCH_EVALUATE_PATH:-$PATH}}"; '
        "parallelsearch evaluate {output:q} --arm {wildcards.arm:q} --seed {wildcards.seed:q} --policy {params.policy:q}"
        " --index {params.index:q} --questions {input.questions:q} --settings {params.settings:q} > {log:q} 2>&1"


use rule evaluate as evaluate_published with:
    output:
        ensure(R.published_episodes("{arm}", "{seed}", "{dataset}.{split}"), non_empty=True),
    log:
        R.log("evaluate_published", "{arm}.seed{seed}.{dataset}.{split}"),
    benchmark:
        R.benchmark("evaluate_published", "{arm}.seed{seed}.{dataset}.{split}")
    params:
        policy=lambda wildcards: PLAN.policy(wildcards.arm, wildcards.seed),
        index=lambda wildcards: PLAN.index(PLAN.corpus_of(f"{wildcards.dataset}.{wildcards.split}")),
        settings=lambda wildcards: PLAN.evaluate_settings(wildcards.arm, published=True),
    message:
        "{wildcards.arm}, seed {wildcards.seed}, answers {wildcards.dataset}.{wildcards.split} as published (GPUs: {resources.gpu}); progress: {log}"


use rule evaluate as evaluate_unlimited with:
    output:
        ensure(R.unlimited_episodes("{arm}", "{seed}", "{dataset}.{split}"), non_empty=True),
    log:
        R.log("evaluate_unlimited", "{arm}.seed{seed}.{dataset}.{split}"),
    benchmark:
        R.benchmark("evaluate_unlimited", "{arm}.seed{seed}.{dataset}.{split}")
    resources:
        mem_mb=lambda wildcards, attempt: NEEDS.evaluate_mb(f"{wildcards.dataset}.{wildcards.split}", attempt),
        runtime=lambda wildcards, attempt: NEEDS.evaluate_minutes(
            f"{wildcards.dataset}.{wildcards.split}", attempt, unlimited=True
        ),
        cpus_per_task=NEEDS.evaluate_cores(),
        gpu=1 if PLAN.study.evaluation.device == "cuda" else 0,
    params:
        policy=lambda wildcards: PLAN.policy(wildcards.arm, wildcards.seed),
        index=lambda wildcards: PLAN.index(PLAN.corpus_of(f"{wildcards.dataset}.{wildcards.split}")),
        settings=lambda wildcards: PLAN.evaluate_settings(wildcards.arm, unlimited=True),
    message:
        "{wildcards.arm}, seed {wildcards.seed}, answers {wildcards.dataset}.{wildcards.split} without the study's limits (GPUs: {resources.gpu}); progress: {log}"


rule judge:
    input:
        R.episodes("{arm}", "{seed}", "{dataset}.{split}"),
    output:
        ensure(R.judgements("{arm}", "{seed}", "{dataset}.{split}"), non_empty=True),
    log:
        R.log("judge", "{arm}.seed{seed}.{dataset}.{split}"),
    benchmark:
        R.benchmark("judge", "{arm}.seed{seed}.{dataset}.{split}")
    localrule: True  # the judge may be reached from the net only
    conda:
        CPU_ENV
    params:
        store=str(R.judge_store()),
        settings=lambda wildcards: PLAN.judge_settings(),
    message:
        "Judging what {wildcards.arm}, seed {wildcards.seed}, answered to {wildcards.dataset}.{wildcards.split}"
    shell:
        "parallelsearch judge {output:q} {input:q} --store {params.store:q} --settings {params.settings:q} > {log:q} 2>&1"
