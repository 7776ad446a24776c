"""Passages -> embeddings -> FAISS index.

INPUTS   {results}/corpus/{{corpus}}/passages.parquet, manifest.json
         config/encoders/NAME.yaml (embed.encoder)
OUTPUTS  {results}/encoders/{{encoder}}/                              weights in Hugging Face layout
         {results}/embeddings/{{corpus}}.{{encoder}}/shard-I-of-N.npy, manifest.json
         {results}/index/{{corpus}}.{{encoder}}.{{kind}}/index.faiss, manifest.json
STEPS    export_encoder -> embed (one job a shard; a finished shard is never encoded twice)
         -> embed_manifest (all shards are there and whole) -> build_index
"""


rule export_encoder:
    input:
        "config/encoders/{encoder}.yaml",
    output:
        ensure(R.encoder("{encoder}") / "manifest.json", non_empty=True),
    log:
        R.log("export_encoder", "{encoder}"),
    benchmark:
        R.benchmark("export_encoder", "{encoder}")
    localrule: True  # a published encoder comes from the net
    conda:
        CPU_ENV
    params:
        folder=str(R.encoder("{encoder}")),
    message:
        "Preparing the encoder {wildcards.encoder}"
    shell:
        "parallelsearch encoder export {wildcards.encoder:q} {params.folder:q} > {log:q} 2>&1"


rule embed:
    input:
        passages=R.corpus("{corpus}") / "passages.parquet",
        corpus=R.corpus("{corpus}") / "manifest.json",
        encoder=R.encoder("{encoder}") / "manifest.json",
    output:
        ensure(R.embeddings("{corpus}", "{encoder}") / "shard-{shard}-of-{shards}.npy", non_empty=True),
    log:
        R.log("embed", "{corpus}.{encoder}.{shard}-of-{shards}"),
    benchmark:
        R.benchmark("embed", "{corpus}.{encoder}.{shard}-of-{shards}")
    conda:
        CPU_ENV
    threads: CORES
    resources:
        mem_mb=lambda wildcards, attempt: NEEDS.embed_mb(wildcards.corpus, attempt),
        runtime=lambda wildcards, attempt: NEEDS.embed_minutes(wildcards.corpus, attempt),
        cpus_per_task=lambda wildcards: NEEDS.embed_cores(wildcards.corpus),
        gpu=NEEDS.embed_gpus(),
    params:
        corpus=subpath(input.corpus, parent=True),
        encoder=subpath(input.encoder, parent=True),
        folder=str(R.embeddings("{corpus}", "{encoder}")),
        settings=lambda wildcards: PLAN.embed_settings(),
    message:
        "Encoding shard {wildcards.shard} of {wildcards.shards} of {wildcards.corpus} (GPUs: {resources.gpu}); progress: {log}"
    shell:
        "parallelsearch embed {params.corpus:q} {params.encoder:q} {params.folder:q}"
        " --shard {wildcards.shard:q} --of {wildcards.shards:q} --settings {params.settings:q} > {log:q} 2>&1"


rule embed_manifest:
    input:
        lambda wildcards: PLAN.shards(wildcards.corpus),
    output:
        ensure(R.embeddings("{corpus}", "{encoder}") / "manifest.json", non_empty=True),
    log:
        R.log("embed_manifest", "{corpus}.{encoder}"),
    benchmark:
        R.benchmark("embed_manifest", "{corpus}.{encoder}")
    conda:
        CPU_ENV
    resources:
        mem_mb=2000,
        runtime=60,
    params:
        corpus=str(R.corpus("{corpus}")),
        encoder=str(R.encoder("{encoder}")),
        folder=str(R.embeddings("{corpus}", "{encoder}")),
        shards=lambda wildcards: len(PLAN.shards(wildcards.corpus)),
    message:
        "Checking the embeddings of {wildcards.corpus}"
    shell:
        "parallelsearch embed-manifest {params.corpus:q} {params.encoder:q} {params.folder:q} --of {params.shards:q}"
        " > {log:q} 2>&1"


rule build_index:
    input:
        corpus=R.corpus("{corpus}") / "manifest.json",
        embeddings=PLAN.embeddings("{corpus}") / "manifest.json",
    output:
        index=ensure(PLAN.dense_index("{corpus}") / "index.faiss", non_empty=True),
        manifest=ensure(PLAN.dense_index("{corpus}") / "manifest.json", non_empty=True),
    log:
        R.log("build_index", "{corpus}"),
    benchmark:
        R.benchmark("build_index", "{corpus}")
    conda:
        CPU_ENV
    threads: CORES
    resources:
        mem_mb=lambda wildcards, attempt: NEEDS.index_mb(wildcards.corpus, attempt),
        runtime=lambda wildcards, attempt: NEEDS.index_minutes(wildcards.corpus, attempt),
        cpus_per_task=lambda wildcards: NEEDS.index_cores(wildcards.corpus),
    params:
        corpus=subpath(input.corpus, parent=True),
        embeddings=subpath(input.embeddings, parent=True),
        folder=str(PLAN.dense_index("{corpus}")),
        settings=lambda wildcards: PLAN.index_settings(),
    message:
        "Building the index of {wildcards.corpus}"
    shell:
        "parallelsearch index build {params.corpus:q} {params.embeddings:q} {params.folder:q}"
        " --settings {params.settings:q} > {log:q} 2>&1"


rule index:
    input:
        [PLAN.index(corpus) / "manifest.json" for corpus in PLAN.study.corpora],
