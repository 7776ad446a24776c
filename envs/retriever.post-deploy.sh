#!/bin/bash
# Run by Snakemake in the new conda environment.
exec bash "$(dirname "$(realpath "$0")")/install.sh" retriever
