"""MLflow, tables, figures and the report: everything that is made from finished results and never retrains anything.

INPUTS   every episodes.parquet, every training run's done.json (and metrics.jsonl beside it), {results}/config.yaml,
         config/published/ (the paper's numbers), and the code that draws: after a change of it tables and figures are
         made again, and nothing else
OUTPUTS  {results}/mlflow/            the SQLite store, created once before any job could race for it; collected.json last
         {results}/tables/{{table}}.{{csv,md,tex}}
         {results}/tables/findings.md   what the study found, in sentences
         {results}/figures/{{figure}}.{{pdf,png,csv}}
         {results}/report/index.html
"""

DRAWING = [
    *sorted(Path("src/parallelsearch/report").glob("*.*")),
    *(
        Path(f"src/parallelsearch/evaluation/{name}.py")
        for name in (
            *("metrics", "critical_path", "intervals", "seed_bootstrap", "comparisons", "paired_tests"),
            *("budgets", "budget_sweep"),
        )
    ),
]
PUBLISHED = sorted(Path("config/published").glob("*.yaml"))


wildcard_constraints:
    table=r"(?!findings$)[^/]+",
    figure=r"[^/]+",


rule tables:
    input:
        [R.table(name, extension) for name in PLAN.tables for extension in ("csv", "md", "tex")],
        R.findings(),


rule figures:
    input:
        [R.figure(name, extension) for name in PLAN.figures for extension in ("pdf", "png", "csv")],


rule report:
    input:
        R.report(),


rule table:
    input:
        results=lambda wildcards: PLAN.table_inputs(wildcards.table),
        published=PUBLISHED,
        code=DRAWING,
    output:
        csv=ensure(R.table("{table}", "csv"), non_empty=True),
        md=report(R.table("{table}", "md"), category="Tables"),
        tex=ensure(R.table("{table}", "tex"), non_empty=True),
    log:
        R.log("table", "{table}"),
    benchmark:
        R.benchmark("table", "{table}")
    conda:
        REPORT_ENV
    resources:
        mem_mb=1000,
        runtime=30,
    params:
        stem=str(R.root / "tables" / "{table}"),
        settings=lambda wildcards: PLAN.report_settings(),
    message:
        "Table {wildcards.table}"
    shell:
        "parallelsearch tables {wildcards.table:q} {params.stem:q} {input.results:q} --settings {params.settings:q}"
        " --published config/published > {log:q} 2>&1"


rule findings:
    input:
        results=PLAN.reported(),
        code=DRAWING,
    output:
        ensure(R.findings(), non_empty=True),
    log:
        R.log("findings"),
    benchmark:
        R.benchmark("findings")
    conda:
        REPORT_ENV
    resources:
        mem_mb=1000,
        runtime=30,
    params:
        settings=lambda wildcards: PLAN.report_settings(),
    message:
        "Findings {output}"
    shell:
        "parallelsearch findings {input.results:q} --settings {params.settings:q} --out {output:q} > {log:q} 2>&1"


rule figure:
    input:
        results=lambda wildcards: PLAN.reported(),
        code=DRAWING,
    output:
        pdf=ensure(R.figure("{figure}", "pdf"), non_empty=True),
        png=report(R.figure("{figure}", "png"), category="Figures"),
        csv=ensure(R.figure("{figure}", "csv"), non_empty=True),
    log:
        R.log("figure", "{figure}"),
    benchmark:
        R.benchmark("figure", "{figure}")
    conda:
        REPORT_ENV
    resources:
        mem_mb=1000,
        runtime=30,
    params:
        stem=str(R.root / "figures" / "{figure}"),
        settings=lambda wildcards: PLAN.report_settings(),
    message:
        "Figure {wildcards.figure}"
    shell:
        "parallelsearch figures {wildcards.figure:q} {params.stem:q} {input.results:q} --settings {params.settings:q}"
        " > {log:q} 2>&1"


rule report_page:
    input:
        results=PLAN.reported(),
        published=PUBLISHED,
        code=DRAWING,
    output:
        report(R.report(), category="Report"),
    log:
        R.log("report_page"),
    benchmark:
        R.benchmark("report_page")
    conda:
        REPORT_ENV
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        settings=lambda wildcards: PLAN.report_settings(),
    message:
        "Report {output}"
    shell:
        "parallelsearch report {output:q} {input.results:q} --settings {params.settings:q}"
        " --published config/published > {log:q} 2>&1"


rule track_init:
    output:
        ensure(R.mlflow() / "store.json", non_empty=True),
    log:
        R.log("track_init"),
    benchmark:
        R.benchmark("track_init")
    priority: 50  # before the fan-out
    localrule: True
    conda:
        REPORT_ENV
    params:
        folder=subpath(output[0], parent=True),
        settings=lambda wildcards: PLAN.tracking_settings(),
    message:
        "Creating the MLflow store in {params.folder}"
    shell:
        "parallelsearch track init {params.folder:q} --settings {params.settings:q} > {log:q} 2>&1"


rule track_collect:
    input:
        store=R.mlflow() / "store.json",
        tables=rules.tables.input,
        figures=rules.figures.input,
        config=R.config(),
        answered=PLAN.answered(),
        unlimited=PLAN.unlimited_episodes(),
        trained=PLAN.trained(),
    output:
        ensure(R.mlflow() / "collected.json", non_empty=True),
    log:
        R.log("track_collect"),
    benchmark:
        R.benchmark("track_collect")
    localrule: True
    conda:
        REPORT_ENV
    params:
        results=subpath(output[0], ancestor=2),
        settings=lambda wildcards: PLAN.tracking_settings(),
    message:
        "Collecting the results into MLflow"
    shell:
        "parallelsearch track collect {params.results:q} --settings {params.settings:q} > {log:q} 2>&1"
