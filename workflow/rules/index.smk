"""Passages -> what is searched (a FAISS index over embeddings, BM25, or both), for every corpus that a question set of the study is searched in.

INPUTS   the raw file of the corpus (corpora.NAME.file.path, or GeoWorld's passages)
         config/encoders/NAME.yaml (embed.encoder), config/rerankers/NAME.yaml (index.reranker.model)
OUTPUTS  {results}/corpus/{{corpus}}/passages.parquet, manifest.json
         {results}/encoders/{{encoder}}/                              weights in Hugging Face layout
         {results}/embeddings/{{corpus}}.{{encoder}}/shard-I-of-N.npy, manifest.json
         {results}/index/{{corpus}}.{{encoder}}.{{kind}}/index.faiss, manifest.json
         {results}/index/{{corpus}}.bm25/bm25/, manifest.json               index.kind bm25 or hybrid
         {results}/index/{{corpus}}.{{encoder}}.hybrid/manifest.json        index.kind hybrid: names the two above
         {results}/rerankers/{{reranker}}/                                  index.reranker: weights
         {results}/index/FIRST STAGE.{{reranker}}/manifest.json             index.reranker: names both
STEPS    build_corpus, export_encoder -> embed (one job a shard; a finished shard is never encoded twice)
         -> embed_manifest (all shards are there and whole) -> build_index
         build_corpus -> build_bm25 (no embeddings) -> fuse_indexes; export_reranker -> rerank_index
"""


rule build_corpus:
    input:
        lambda wildcards: PLAN.raw_corpus(wildcards.corpus),
    output:
        passages=ensure(R.corpus("{corpus}") / "passages.parquet", non_empty=True),
        manifest=ensure(R.corpus("{corpus}") / "manifest.json", non_empty=True),
    log:
        R.log("build_corpus", "{corpus}"),
    benchmark:
        R.benchmark("build_corpus", "{corpus}")
    conda:
        CPU_ENV
    # Only a dump has work for several processes; each of them takes about 250 MB at most.
    threads: lambda wildcards: workflow.cores if PLAN.study.corpora[wildcards.corpus].source == "mediawiki" else 1
    resources:
        mem_mb=lambda wildcards, threads: 1000 + 250 * threads,
        runtime=240,
    params:
        folder=str(R.corpus("{corpus}")),
        source=lambda wildcards: PLAN.study.corpora[wildcards.corpus].source,
        licence=lambda wildcards: PLAN.study.corpora[wildcards.corpus].licence,
    message:
        "Reading the passages of {wildcards.corpus} from {input}"
    shell:
        "parallelsearch corpus build {params.source:q} {input:q} {params.folder:q} --licence {params.licence:q}"
        " --workers {threads} > {log:q} 2>&1"


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
    threads: workflow.cores
    resources:
        mem_mb=3000,
        runtime=240,
        gpu=0,
    params:
        corpus=subpath(input.corpus, parent=True),
        encoder=subpath(input.encoder, parent=True),
        folder=str(R.embeddings("{corpus}", "{encoder}")),
        settings=PLAN.embed_settings(),
    message:
        "Encoding shard {wildcards.shard} of {wildcards.shards} of {wildcards.corpus} (GPUs: {resources.gpu}); progress: {log}"
    shell:
        "parallelsearch embed {params.corpus:q} {params.encoder:q} {params.folder:q}"
        " --shard {wildcards.shard} --of {wildcards.shards} --settings {params.settings:q} > {log:q} 2>&1"


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
        "parallelsearch embed-manifest {params.corpus:q} {params.encoder:q} {params.folder:q} --of {params.shards}"
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
    threads: workflow.cores
    resources:
        mem_mb=3000,
        runtime=240,
    params:
        corpus=subpath(input.corpus, parent=True),
        embeddings=subpath(input.embeddings, parent=True),
        folder=str(PLAN.dense_index("{corpus}")),
        settings=PLAN.index_settings(),
    message:
        "Building the index of {wildcards.corpus}"
    shell:
        "parallelsearch index build {params.corpus:q} {params.embeddings:q} {params.folder:q}"
        " --settings {params.settings:q} > {log:q} 2>&1"


rule build_bm25:
    input:
        R.corpus("{corpus}") / "manifest.json",
    output:
        ensure(R.bm25("{corpus}") / "manifest.json", non_empty=True),
    log:
        R.log("build_bm25", "{corpus}"),
    benchmark:
        R.benchmark("build_bm25", "{corpus}")
    conda:
        CPU_ENV
    resources:
        mem_mb=2000,
        runtime=240,
    params:
        corpus=subpath(input[0], parent=True),
        folder=str(R.bm25("{corpus}")),
        settings=PLAN.bm25_settings(),
    message:
        "Building the BM25 index of {wildcards.corpus}"
    shell:
        "parallelsearch index bm25 {params.corpus:q} {params.folder:q} --settings {params.settings:q} > {log:q} 2>&1"


rule fuse_indexes:
    input:
        dense=PLAN.dense_index("{corpus}") / "manifest.json",
        bm25=R.bm25("{corpus}") / "manifest.json",
    output:
        ensure(PLAN.hybrid_index("{corpus}") / "manifest.json", non_empty=True),
    log:
        R.log("fuse_indexes", "{corpus}"),
    benchmark:
        R.benchmark("fuse_indexes", "{corpus}")
    conda:
        CPU_ENV
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        dense=subpath(input.dense, parent=True),
        bm25=subpath(input.bm25, parent=True),
        folder=str(PLAN.hybrid_index("{corpus}")),
        settings=PLAN.fusion_settings(),
    message:
        "Joining the dense and the BM25 index of {wildcards.corpus}"
    shell:
        "parallelsearch index fuse {params.dense:q} {params.bm25:q} {params.folder:q}"
        " --settings {params.settings:q} > {log:q} 2>&1"


rule export_reranker:
    input:
        "config/rerankers/{reranker}.yaml",
    output:
        ensure(R.reranker("{reranker}") / "manifest.json", non_empty=True),
    log:
        R.log("export_reranker", "{reranker}"),
    benchmark:
        R.benchmark("export_reranker", "{reranker}")
    localrule: True  # a published model comes from the net
    conda:
        CPU_ENV
    params:
        folder=subpath(output[0], parent=True),
    message:
        "Preparing the reranker {wildcards.reranker}"
    shell:
        "parallelsearch reranker export {wildcards.reranker:q} {params.folder:q} > {log:q} 2>&1"


rule rerank_index:
    input:
        index=PLAN.first_stage("{corpus}") / "manifest.json",
        reranker=R.reranker("{reranker}") / "manifest.json",
    output:
        ensure(R.reranked(PLAN.first_stage("{corpus}"), "{reranker}") / "manifest.json", non_empty=True),
    log:
        R.log("rerank_index", "{corpus}.{reranker}"),
    benchmark:
        R.benchmark("rerank_index", "{corpus}.{reranker}")
    conda:
        CPU_ENV
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        index=subpath(input.index, parent=True),
        reranker=subpath(input.reranker, parent=True),
        folder=str(R.reranked(PLAN.first_stage("{corpus}"), "{reranker}")),
        candidates=PLAN.rerank_candidates(),
    message:
        "Putting {wildcards.reranker} over the index of {wildcards.corpus}"
    shell:
        "parallelsearch index rerank {params.index:q} {params.reranker:q} {params.folder:q}"
        " --candidates {params.candidates} > {log:q} 2>&1"
