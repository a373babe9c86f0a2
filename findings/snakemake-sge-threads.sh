#!/usr/bin/env bash
# FINDING: snakemake-executor-plugin-sge 0.6.31 asks SGE for one slot, whatever the threads of a rule are. Snakemake has
# the number after threads: in job.threads; the plugin looks for a resource with this name, which Snakemake does not
# make, and takes 1 where there is none. One would think that --sge-pe, "parallel environment for multi-thread jobs", is
# asked for the threads of a rule, as the plugins for Slurm and LSF do. The rule's command is run with 8 threads on one
# slot, with other jobs on the cores that it uses, and all of the memory is asked for that slot. Nothing is said. With
# threads=8 among the resources too, as in an example of its README, the job gets its 8 slots.
#
# Seen with snakemake-executor-plugin-sge 0.6.31 and snakemake 9.27.1, qsub simulated, a rule of 16 GB:
#   threads: 8: -pe smp 1, h_vmem=16G
#   threads: 8, resources: threads=8: -pe smp 8, h_vmem=2G
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet snakemake==9.27.1 snakemake-executor-plugin-sge==0.6.31

mkdir "$folder/bin"
cat > "$folder/bin/qsub" <<'QSUB'
#!/usr/bin/env bash
# Notes what it is asked for, and takes no job.
echo "$@" > "$ASKED"
exit 1
QSUB
chmod +x "$folder/bin/qsub"
for command in qstat qacct qdel; do
    ln -s "$(type -P true)" "$folder/bin/$command"
done

still=0
check() { # TEXT RESOURCES EXPECTED
    local campaign seen
    campaign=$(mktemp -d -p "$folder")
    cat > "$campaign/Snakefile" <<SNAKEFILE
rule solve:
    output: "result"
    threads: 8
    resources: $2
    shell: "solver --threads {threads} > {output}"
SNAKEFILE
    HOME=$folder PATH="$folder/bin:$PATH" ASKED=$campaign/asked "$folder/venv/bin/snakemake" \
        --directory "$campaign" --snakefile "$campaign/Snakefile" --jobs 100 --cores 100 \
        --executor sge --sge-pe smp > "$folder/log" 2>&1 || true
    seen=$(grep -oE -- '-pe smp [0-9]+|h_vmem=[0-9]+G' "$campaign/asked" | paste -sd, | sed 's/,/, /')
    echo "$1: $seen"
    [[ "$seen" == "$3" ]] || still=1
}
check "threads: 8" "mem_mb=16384" "-pe smp 1, h_vmem=16G"
check "threads: 8, resources: threads=8" "mem_mb=16384, threads=8" "-pe smp 8, h_vmem=2G"
exit "$still"
