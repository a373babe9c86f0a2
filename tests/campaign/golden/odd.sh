#!/usr/bin/env bash

#SBATCH -J dvfs-0123456789
#SBATCH -p gpu
#SBATCH -n 1
#SBATCH --cpus-per-task=64
#SBATCH --mem=187G
#SBATCH -t 1-00:00:00
#SBATCH -N 1
#SBATCH --no-requeue
#SBATCH --account='proj 42; touch x'
#SBATCH --qos='$(id)'
#SBATCH -o STORE/logs/%x-%j.log
#SBATCH --gres=gpu:4
#SBATCH --constraint=a100&nvlink
module load cuda/12.4 || exit
module load '$(touch x)' || exit
export WORDS='a '"'"'b'"'"' "c" $HOME; touch x'
'/opt/envs/a b/bin/python' -m distributed.cli.dask_worker SCHEDULER --name WORKER --nthreads 1 --memory-limit 0.0B --no-nanny --death-timeout 60 --local-directory '/scratch/my dir' --no-dashboard --dashboard-address 127.0.0.1:0 --preload campaign.launch.timers --interface ib0
