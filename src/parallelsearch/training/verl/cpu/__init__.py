"""veRL on a machine without a GPU.

veRL imports `parallelsearch.training.verl.cpu.plugin` in each of its processes when VERL_USE_EXTERNAL_MODULES names it.
Through veRL's own extension points it adds a CPU platform and a rollout server on Hugging Face models; what veRL 0.9.1
hard-codes for GPUs and offers no setting for is replaced in plugin.py, each with its reason.
"""
