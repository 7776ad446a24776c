#!/bin/bash
# envs/install.sh ENV: installs envs/ENV.txt (cpu, gpu, retriever or report) and this project into the active virtual or conda
# environment.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
lock="$here/${1:-}.txt"
case "${1:-}" in
    cpu | gpu | retriever | report) ;;
    *) echo "There is no environment '${1:-}'; known are cpu, gpu, retriever and report." >&2; exit 1 ;;
esac
if [ -z "${VIRTUAL_ENV:-}${CONDA_PREFIX:-}" ]; then
    echo "No environment is active; make one (python3.11 -m venv .venv-$1) and activate it first." >&2
    exit 1
fi
python -m pip install --no-deps -r <(grep -v '^flash-attn==' "$lock")
if compiled=$(grep '^flash-attn==' "$lock"); then # against the torch that is installed by now
    python -m pip install --no-deps --no-build-isolation "$compiled"
fi
python -m pip install --no-deps -e "$here/.."
