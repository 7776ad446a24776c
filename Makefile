# Every target sets itself up: it creates .venv when there is none, and installs when the lock changed.
#   make demo         the laptop demo, two arms and one seed, from nothing to tables, figures, report and MLflow store
#   make study        the whole laptop study: four arms, three seeds; it takes up what `make demo` made
#   make test         all tests but the whole training jobs of single arms
#   make test-all     everything, style and types included; each arm's job takes minutes, all of them hours on two cores
#   make lock-check   whether the package index still resolves every environment to its lock; nothing is installed
#   make test-slurm   the smoke study through a Slurm that it brings up on this machine (Debian), and what goes wrong on clusters
#   make test-faults  training jobs that are killed, or lose Ray, the retriever or room on the disk (docs/faults.md)
#   make guides       the guides of docs/, followed step by step from a fresh clone, its own `make env` included
#   make real         real questions, a real language model, no training
#   make bench-retrieval   encoder, server and indexes against the plain way; recall of supporting pages
#   make bench-rollout     episodes a second of the asynchronous loop against a turn-synchronous one (POLICY=folder)
# CONFIG=config/NAME.yaml make demo     another study

SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -ec
PYTHON ?= $(shell command -v python3.11 || command -v python3)
LOCK := envs/cpu.txt
STAMP := .venv/$(shell cat $(LOCK) pyproject.toml 2>/dev/null | sha256sum | cut -c1-16).installed
# pip says that entries of its own index configuration are ignored; that is no concern of this project's. Modules are compiled
# when they are first imported, not all 25,000 of them now.
PIP := .venv/bin/python -m pip --disable-pip-version-check -q
QUIET = 2> >(grep -v "WARNING: Location '.*' is ignored" >&2)
STUDY := $(if $(CONFIG),--configfile $(CONFIG))
RESULTS ?= results

export PATH := $(CURDIR)/.venv/bin:$(PATH)
export PIP_ROOT_USER_ACTION := ignore
# A container that forbids compiled modules would make each of a training job's processes compile all of veRL anew.
unexport PYTHONDONTWRITEBYTECODE
# Several processes compute at once: a waiting thread must not keep a core busy (a step was 10 times slower with it).
export OMP_WAIT_POLICY := PASSIVE

.PHONY: help env browser postgresql demo study real report mlflow test test-all test-faults test-slurm guides lint lock locks \
  lock-check clean bench-retrieval bench-rollout

help:
	@sed -n '1,/^$$/s/^# \{0,1\}//p' Makefile

# -- set-up ------------------------------------------------------------------------------------------------------------

env: $(STAMP)

$(STAMP): $(LOCK) pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed, $$($(PYTHON) --version) was found; set PYTHON=/path/to/python3.11." >&2; exit 1; }
	@[ -x .venv/bin/python ] || { echo "Creating .venv with $$($(PYTHON) --version)"; $(PYTHON) -m venv .venv; }
	@echo "Installing $(LOCK) into .venv"
	@$(PIP) install --no-compile "$$(grep '^torch==' $(LOCK))" $(QUIET)
	@$(PIP) install --no-compile --no-deps -r $(LOCK) $(QUIET)
	@$(PIP) install --no-deps -e . $(QUIET)
	@rm -f .venv/*.installed && touch $@

# The browser tests drive a real Chromium; without it they are skipped, and say so.
browser:
	@if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "Installing chromium and chromium-driver"; \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium chromium-driver; } >/dev/null \
	    || echo "chromium could not be installed: the browser tests will be skipped"; \
	else echo "chromium and chromedriver are missing and cannot be installed here: the browser tests will be skipped"; fi

# The tests of many writers start PostgreSQL servers of their own; without its programs they are skipped, and say so.
postgresql:
	@if ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "Installing postgresql"; \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq postgresql; } >/dev/null \
	    || echo "postgresql could not be installed: the tests that need it will be skipped"; \
	else echo "postgresql is missing and cannot be installed here: the tests that need it will be skipped"; fi

# -- the study ---------------------------------------------------------------------------------------------------------

demo: env
	@parallelsearch doctor
	@workflow/unlock-after-kill.sh
	snakemake all $(STUDY)
	@echo; cat $(RESULTS)/tables/geoworld_by_structure.md
	@echo; cat $(RESULTS)/tables/findings.md
	@echo; echo "Report:  $(RESULTS)/report/index.html"
	@echo "Tables:  $(RESULTS)/tables/    figures: $(RESULTS)/figures/"
	@echo "MLflow:  $(RESULTS)/mlflow/mlflow.db    (make mlflow opens it on http://127.0.0.1:5000)"

study:
	$(MAKE) demo CONFIG=config/study.yaml

# Real questions, a real language model, no training; needs the two question files that config/real.yaml names.
real: env
	@workflow/unlock-after-kill.sh
	snakemake all --configfile config/real.yaml
	@echo; cat results-real/tables/{hotpotqa,2wikimultihopqa}_by_structure.md

report: env
	@workflow/unlock-after-kill.sh
	snakemake tables figures report $(STUDY)

mlflow: env
	mlflow server --backend-store-uri sqlite:///$(RESULTS)/mlflow/mlflow.db \
	  --artifacts-destination $(RESULTS)/mlflow/artifacts --host 127.0.0.1 --port 5000

# -- measurements ------------------------------------------------------------------------------------------------------

# Passages (JSON lines with title and text) and questions in their data sets' own layout.
BENCH_DATA ?= ../shared/data
BENCH := results-bench
bench-retrieval: env
	python benchmarks/bench_recall.py --work $(BENCH) --sample 6000 --passages $(BENCH_DATA)/corpus.jsonl.gz \
	  --questions hotpotqa=$(BENCH_DATA)/hotpotqa.jsonl.gz \
	  --questions 2wikimultihopqa=$(BENCH_DATA)/2wikimultihopqa.jsonl.gz
	python benchmarks/bench_encode.py --corpus $(BENCH)/corpus --encoder $(BENCH)/encoder
	python benchmarks/bench_server.py --work $(BENCH) --questions $(BENCH)/questions/hotpotqa.parquet
	python benchmarks/load_server.py --work $(BENCH) --questions $(BENCH)/questions/hotpotqa.parquet
	python benchmarks/bench_index.py $(BENCH)/embeddings $(BENCH)/scale --rows 100000 --rows 1000000 \
	  --parameter hnsw.M=16 --parameter hnsw.efConstruction=80

# The laptop study's warm-started policy, index and test questions, which are made where they are missing.
POLICY ?= results/warm_start/seed0/policy
ROLLOUT_INDEX := results/index/geoworld.multilingual-e5-small.flat
ROLLOUT_QUESTIONS := results/questions/geoworld.test.parquet
bench-rollout: env
	@workflow/unlock-after-kill.sh
	snakemake results/warm_start/seed0/done.json $(ROLLOUT_INDEX)/manifest.json $(ROLLOUT_QUESTIONS)
	python benchmarks/bench_rollout.py $(POLICY) $(ROLLOUT_INDEX) $(ROLLOUT_QUESTIONS)

# -- checks ------------------------------------------------------------------------------------------------------------

test: env browser postgresql
	pytest

test-all: lint browser postgresql
	pytest -m "not network and not slurm"

# To fill a disk it mounts a small one, as root; elsewhere that test is skipped, and says so.
test-faults: env
	pytest -m faults

# Installs Debian's slurm packages where they are missing, for which it has to run as root; stops its daemons at the end.
test-slurm: env
	pytest -m slurm

# Each page's commands as they stand there, in a clone in a temporary folder; docs/cluster.md on a Slurm of one node. The clone
# installs its own environment from the package index. GUIDES=own-corpus.md follows one page.
guides: env
	python tests/guides/follow.py $(GUIDES)

lint: env
	ruff check src tests benchmarks
	ruff format --check src tests benchmarks
	mypy
	snakefmt --check Snakefile workflow
	snakemake --lint
	parallelsearch config schema --check

# The lock is what the tests ran with. torch without its local suffix (+cpu), so that any index can serve it.
lock:
	@{ echo "# Exact versions of everything in envs/cpu.in and what it brings; written by \`make lock\`. Do not edit."; \
	   .venv/bin/python -m pip freeze --all --exclude-editable 2>/dev/null \
	     | sed -E '/^pip==/d; s/^(torch==[^+]*)\+.*/\1/'; } > $(LOCK)
	@envs/lock.sh --conda

# The other environments are resolved by uv, without downloading or building any package; both need the network.
locks: env
	envs/lock.sh

lock-check: env
	pytest -m network tests/test_lock_resolution.py

clean:
	rm -rf results-smoke .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} +
