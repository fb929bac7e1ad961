#!/bin/sh
#SBATCH --job-name=tessera-warm
#SBATCH --array=0-3
#SBATCH --cpus-per-task=8
#SBATCH --time=00:30:00
# sbatch slurm.sh: four tasks of an array, whose SLURM_ARRAY_TASK_ID and SLURM_ARRAY_TASK_COUNT warm.sh reads. TESSERA_REMOTE comes from the environment.
set -eu
exec sh "${SLURM_SUBMIT_DIR:-.}/warm.sh"
