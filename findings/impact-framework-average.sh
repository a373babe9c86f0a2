#!/usr/bin/env bash
# FINDING: the Impact Framework 1.1.0 of the Green Software Foundation makes 80 W of a steady 100 W. Its TimeSync puts
# the rows of a manifest on one grid of times: it splits them into seconds, and makes rows of the interval from these.
# For a value whose aggregation method over time is "avg", such as a power, a utilization or the intensity of a grid, it
# adds up the seconds of an interval without the last one, and divides by their number. One would think of the mean. An
# interval of N seconds has (N - 1) / N of the true value, half of it at 2 s. Nothing is said, and the values with "sum"
# in the same rows are right.
#
# Seen with @grnsft/if 1.1.0, a row of 60 s with 100 W (avg) and 6000 J (sum):
#   interval 1 s: 100.00 W, 6000 J
#   interval 2 s: 50.00 W, 6000 J
#   interval 5 s: 80.00 W, 6000 J
#   interval 60 s: 98.33 W, 6000 J
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
npm install --silent --no-audit --no-fund --prefix "$folder" @grnsft/if@1.1.0 > "$folder/install.log" 2>&1

still=0
check() { # INTERVAL_S POWER_W
    cat > "$folder/manifest.yml" <<YAML
name: one node
initialize:
  plugins:
    synchronise:
      method: TimeSync
      path: builtin
      config:
        start-time: '2026-01-01T00:00:00.000Z'
        end-time: '2026-01-01T00:01:00.000Z'
        interval: $1
        allow-padding: true
      parameter-metadata:
        inputs:
          power: {unit: W, description: mean power, aggregation-method: {time: avg, component: sum}}
          energy: {unit: J, description: energy, aggregation-method: {time: sum, component: sum}}
tree:
  children:
    node:
      pipeline:
        compute: [synchronise]
      inputs:
        - {timestamp: '2026-01-01T00:00:00.000Z', duration: 60, power: 100, energy: 6000}
YAML
    "$folder/node_modules/.bin/if-run" --manifest "$folder/manifest.yml" > "$folder/result" 2> "$folder/log"
    local seen
    seen=$(awk '/^ *outputs:/ { rows = 1 }
                rows && $1 == "power:" { power += $2; count++ }
                rows && $1 == "energy:" { energy += $2 }
                END { printf "%.2f W, %.0f J", power / count, energy }' "$folder/result")
    echo "interval $1 s: $seen"
    [[ "$seen" == "$2 W, 6000 J" ]] || still=1
}
check 1 100.00
check 2 50.00
check 5 80.00
check 60 98.33
exit "$still"
