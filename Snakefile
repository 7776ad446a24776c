"""The whole study: raw facts -> questions, passages, index -> policies, arms -> episodes -> MLflow, tables, figures, report.

Here stand the configuration, its validation and the targets `all` and the arms'; each stage, with its own target, stands
in a file of its own under workflow/rules. Any file under results/ is a target, too.
"""

import os
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.utils import min_version
from parallelsearch.config_files import check_loaded
from parallelsearch.errors import UserError
from parallelsearch.plan.job_needs import JobNeeds
from parallelsearch.plan.job_sizes import JobSizes
from parallelsearch.plan.planning import StudyPlan

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # waiting threads leave their core to other jobs
min_version("9.18")  # from here on reruns compare checksums, and `mtime` does not look at scripts


configfile: "config/config.yaml"


try:  # unknown and repeated keys, wrong types, unknown arms and data sets end here, before any job is planned
    check_loaded([*workflow.configfiles, *Path("profiles").glob("*/*.yaml")], workflow.config_settings.config_args)
    PLAN = StudyPlan.from_values(config, config_dir=Path("config"))
except UserError as error:
    raise WorkflowError(str(error)) from None
R = PLAN.results
NEEDS = JobNeeds(JobSizes(PLAN))  # memory, minutes and cores of each job; sites override them in profiles/slurm/


include: "workflow/rules/study.smk"
include: "workflow/rules/questions.smk"
include: "workflow/rules/corpus.smk"
include: "workflow/rules/index.smk"
include: "workflow/rules/hybrid.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/report.smk"


rule all:
    default_target: True
    input:
        rules.tables.input,
        rules.figures.input,
        rules.report.input,
        R.mlflow() / "collected.json",


for TARGET, ARM in PLAN.arm_targets.items():  # `snakemake arm_search_r1`: one arm, trained and evaluated for every seed

    rule:
        name:
            TARGET
        input:
            PLAN.episodes(ARM),
