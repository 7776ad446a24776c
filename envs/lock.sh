#!/bin/bash
# Resolves the environments anew and writes their locks and conda files; nothing is downloaded but metadata. A version that a
# lock holds is kept as long as it fits: change ENV.in, or delete a line of ENV.txt, to have another.
#   envs/lock.sh               gpu.txt, retriever.txt, report.txt, then the conda files (make locks)
#   envs/lock.sh --conda       the conda files alone (make lock)
#   envs/lock.sh --cpu FILE    what the resolver makes of cpu.in, where cpu.txt is what was installed and tested
set -euo pipefail
cd "$(dirname "$0")/.."

resolve() { # name, output, further options. Any Linux with glibc 2.34 (RHEL 9, Ubuntu 22.04, Debian 12) on x86_64.
    uv pip compile "envs/$1.in" --output-file "$2" --config-file envs/uv.toml --override envs/left-out.txt \
        --python-version 3.11 --python-platform x86_64-manylinux_2_34 --no-header --quiet "${@:3}"
}

if [ "${1:-}" = --cpu ]; then
    grep -v '^#' envs/cpu.txt >"$2"
    resolve cpu "$2" --override envs/cpu-left-out.txt
    exit
fi
if [ "${1:-}" != --conda ]; then
    pins=$(mktemp --suffix=.txt)
    trap 'rm -f "$pins"' EXIT
    for name in gpu retriever report; do
        tested=()
        [ "$name" = gpu ] || tested=(--constraint envs/cpu.txt) # vLLM does not let the GPU environment have all of them
        grep -v '^#' "envs/$name.txt" >"$pins" || true
        resolve "$name" "$pins" "${tested[@]}"
        {
            echo "# Exact versions of everything in envs/$name.in and what it brings, for Python 3.11 on Linux (x86_64, glibc 2.34 or"
            echo "# newer); written by \`make locks\`. Do not edit. Install: envs/install.sh $name"
            cat "$pins"
        } >"envs/$name.txt.partial"
        mv "envs/$name.txt.partial" "envs/$name.txt"
    done
fi
for name in cpu gpu retriever report; do
    {
        echo "# For conda and for \`snakemake --sdm conda\`: Python and pip; envs/$name.post-deploy.sh installs the lock into it."
        echo "# Written by \`make locks\`. With another lock Snakemake makes the environment anew: envs/$name.txt has SHA-256"
        echo "# $(sha256sum <"envs/$name.txt" | cut -d' ' -f1)"
        printf 'name: parallelsearch-%s\nchannels: [conda-forge]\ndependencies:\n  - python=3.11\n  - pip\n' "$name"
    } >"envs/$name.yaml"
done
