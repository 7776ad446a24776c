"""MLflow, tables, figures and the report: everything that is made from finished results and never retrains anything.

INPUTS   every episodes.parquet, every training run's done.json and metrics.jsonl, {results}/config.yaml
OUTPUTS  {results}/mlflow/            the SQLite store, created once before any job could race for it; collected.json last
         {results}/tables/*.{{csv,md,tex}}, {results}/figures/*.{{pdf,png}}, {results}/report/index.html
"""

TABLES = ["geoworld_by_structure"]
FIGURES = ["training_curves"]


rule track_init:
    output:
        touch(R.mlflow() / ".created"),
    log:
        R.log("track_init"),
    benchmark:
        R.benchmark("track_init")
    priority: 50  # before the fan-out
    localrule: True
    conda:
        CPU_ENV
    params:
        folder=R.mlflow(),
        settings=PLAN.tracking_settings(),
    message:
        "Creating the MLflow store in {params.folder}"
    shell:
        "parallelsearch track init {params.folder:q} --settings {params.settings:q} > {log:q} 2>&1"


rule track_collect:
    input:
        R.mlflow() / ".created",
        config=R.config(),
        episodes=PLAN.episodes(),
        trained=PLAN.trained(),
    output:
        ensure(R.mlflow() / "collected.json", non_empty=True),
    log:
        R.log("track_collect"),
    benchmark:
        R.benchmark("track_collect")
    localrule: True
    conda:
        CPU_ENV
    params:
        settings=PLAN.tracking_settings(),
        results=R.root,
    message:
        "Collecting the results into MLflow"
    shell:
        "parallelsearch track collect {params.results:q} --settings {params.settings:q} > {log:q} 2>&1"


rule tables:
    input:
        [R.table(name, extension) for name in TABLES for extension in ("csv", "md", "tex")],


rule figures:
    input:
        [R.figure(name, extension) for name in FIGURES for extension in ("pdf", "png")],


rule report:
    input:
        R.report(),
