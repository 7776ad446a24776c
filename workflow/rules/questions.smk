"""Questions of every data set, tagged with their structure, in one layout.

INPUTS   the data set's own file of the split (datasets.NAME.splits.SPLIT.path; downloaded when it has a url)
         or, for GeoWorld, what the generator wrote; config/structure.yaml (question type -> structure)
OUTPUTS  {results}/geoworld/{{passages,questions.train,questions.dev,questions.test}}.jsonl,
                   facts.{{train,dev,test}}.json (what the questions and demonstrations are made from), manifest.json
         {results}/questions/{{dataset}}.{{split}}.parquet
STEPS    geoworld (only where a data set or corpus asks for it) -> import_questions
"""


rule geoworld:
    output:
        R.geoworld() / "passages.jsonl",
        [R.geoworld() / f"questions.{split}.jsonl" for split in ("train", "dev", "test")],
        [R.geoworld() / f"facts.{split}.json" for split in ("train", "dev", "test")],
        ensure(R.geoworld() / "manifest.json", non_empty=True),
    log:
        R.log("geoworld"),
    benchmark:
        R.benchmark("geoworld")
    conda:
        CPU_ENV
    resources:
        mem_mb=1000,
        runtime=30,
    params:
        folder=subpath(output[0], parent=True),
        settings=lambda wildcards: PLAN.geoworld_settings(),
    message:
        "Generating the GeoWorld encyclopedia and its questions"
    shell:
        "parallelsearch geoworld build {params.folder:q} --settings {params.settings:q} > {log:q} 2>&1"


rule import_questions:
    input:
        raw=lambda wildcards: PLAN.raw_questions(f"{wildcards.dataset}.{wildcards.split}"),
        structures="config/structure.yaml",
    output:
        ensure(R.questions("{dataset}", "{split}"), non_empty=True),
    log:
        R.log("import_questions", "{dataset}.{split}"),
    benchmark:
        R.benchmark("import_questions", "{dataset}.{split}")
    conda:
        CPU_ENV
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        reader=lambda wildcards: PLAN.question_reader(wildcards.dataset),
        sizes=lambda wildcards: PLAN.question_sizes(f"{wildcards.dataset}.{wildcards.split}"),
    message:
        "Reading the {wildcards.split} questions of {wildcards.dataset} from {input.raw}"
    shell:
        "parallelsearch questions import {params.reader:q} {input.raw:q} {output:q} --split {wildcards.split:q}"
        " --expect {params.sizes:q} > {log:q} 2>&1"


rule questions:
    input:
        [PLAN.questions(question_set) for question_set in PLAN.question_sets],
