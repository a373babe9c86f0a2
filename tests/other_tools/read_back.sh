#!/usr/bin/env bash
# Kernel Tuner 1.5.0 and Extra-P 4.2, each in an environment of its own, read what campaign export
# writes: tests/other_tools/read_back.sh CAMPAIGN FILE, of which FILE is one of Kernel Tuner with clocks.
# Each must read every value.
set -euo pipefail
campaign=$(realpath -s "$1")
file=$(realpath "$2")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"$campaign" import "$file" --store store --site here --from kernel-tuner
"$campaign" export store --kernel-tuner results.json --extra-p energy.jsonl --metric energy_j
for tool in kernel_tuner==1.5 extrap==4.2; do
    python3 -m venv "${tool%%=*}"
    "${tool%%=*}/bin/pip" install --quiet "$tool"
done
kernel_tuner/bin/python - <<'PYTHON'
import json

import jsonschema
from kernel_tuner.file_utils import output_file_schema

version, schema = output_file_schema("results")
with open("results.json") as file:
    results = json.load(file)
jsonschema.validate(results, schema)
print(f"Kernel Tuner's schema {version}: {len(results['results'])} results are valid")
PYTHON
extrap/bin/python - <<'PYTHON'
import json

from extrap.fileio.file_reader.jsonlines_file_reader import read_jsonlines_file
from extrap.modelers.model_generator import ModelGenerator

experiment = read_jsonlines_file("energy.jsonl")
with open("energy.jsonl") as file:
    wanted = sorted(json.loads(line)["value"] for line in file)
read = sorted(float(one.mean) for of in experiment.measurements.values() for one in of)
assert read == wanted, (read, wanted)
models = ModelGenerator(experiment)
models.model_all()
for model in models.models.values():
    print(f"Extra-P: {model.callpath}: {model.hypothesis.function}")
PYTHON
