"""What this machine is and has: processor, memory, disk, GPUs, Slurm, and whether its environment is whole."""
