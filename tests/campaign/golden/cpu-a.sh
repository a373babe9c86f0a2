#!/usr/bin/env bash

#SBATCH -J dvfs-0123456789
#SBATCH -p cpu-a
#SBATCH -n 1
#SBATCH --cpus-per-task=4
#SBATCH --mem=4G
#SBATCH -t 02:00:00
#SBATCH -N 1
#SBATCH --no-requeue
#SBATCH --exclusive
#SBATCH -o STORE/logs/%x-%j.log

PYTHON -m distributed.cli.dask_worker SCHEDULER --name WORKER --nthreads 1 --memory-limit 0.0B --no-nanny --death-timeout 60 --local-directory /tmp --no-dashboard --dashboard-address 127.0.0.1:0 --preload campaign.launch.timers
