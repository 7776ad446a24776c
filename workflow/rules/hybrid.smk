"""What is searched beside or over a FAISS index: BM25, both together, a reranker (index.kind, index.reranker).

INPUTS   {results}/corpus/{{corpus}}/, the FAISS index of the corpus (index.smk), config/rerankers/NAME.yaml
OUTPUTS  {results}/index/{{corpus}}.bm25/bm25/, manifest.json               index.kind bm25 or hybrid
         {results}/index/{{corpus}}.{{encoder}}.hybrid/manifest.json        index.kind hybrid: names the two indexes
         {results}/rerankers/{{reranker}}/                                  index.reranker: weights
         {results}/index/FIRST STAGE.{{reranker}}/manifest.json             index.reranker: names index and reranker
STEPS    build_bm25 (no embeddings) -> fuse_indexes; export_reranker -> rerank_index
"""


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
        mem_mb=lambda wildcards, attempt: NEEDS.bm25_mb(wildcards.corpus, attempt),
        runtime=lambda wildcards, attempt: NEEDS.bm25_minutes(wildcards.corpus, attempt),
    params:
        corpus=subpath(input[0], parent=True),
        folder=str(R.bm25("{corpus}")),
        settings=lambda wildcards: PLAN.bm25_settings(),
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
        settings=lambda wildcards: PLAN.fusion_settings(),
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
        candidates=lambda wildcards: PLAN.rerank_candidates(),
    message:
        "Putting {wildcards.reranker} over the index of {wildcards.corpus}"
    shell:
        "parallelsearch index rerank {params.index:q} {params.reranker:q} {params.folder:q}"
        " --candidates {params.candidates:q} > {log:q} 2>&1"
