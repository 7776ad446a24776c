"""Raw files -> passages, for every corpus that a question set of the study is searched in.

INPUTS   the raw file of the corpus (corpora.NAME.file.path, or GeoWorld's passages)
OUTPUTS  {results}/corpus/{{corpus}}/passages.parquet, manifest.json
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
        mem_mb=lambda wildcards, threads, attempt: NEEDS.corpus_mb(threads, attempt),
        runtime=lambda wildcards, attempt: NEEDS.corpus_minutes(wildcards.corpus, attempt),
        cpus_per_task=lambda wildcards: NEEDS.corpus_cores(wildcards.corpus),
    params:
        folder=str(R.corpus("{corpus}")),
        source=lambda wildcards: PLAN.corpus_source(wildcards.corpus),
        licence=lambda wildcards: PLAN.study.corpora[wildcards.corpus].licence,
    message:
        "Reading the passages of {wildcards.corpus} from {input}"
    shell:
        "parallelsearch corpus build {params.source:q} {input:q} {params.folder:q} --licence {params.licence:q}"
        " --workers {threads} > {log:q} 2>&1"
