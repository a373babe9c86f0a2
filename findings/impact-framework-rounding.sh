#!/usr/bin/env bash
# FINDING: the Impact Framework 1.1.0 of the Green Software Foundation has no energy for a second of 1 W. Its
# TimeConverter turns the energy of an hour, a year or another time into the energy of each row of a manifest, and
# rounds its results to six digits after the point. Nothing says so. In kWh, the framework's unit of energy, the last of
# them is 3.6 J. One would think of floating point numbers to the end, as its other plugins have them. Rows of a second
# lose all of a device below 1.8 W, and 20 W are counted as 21.6 W; for a steady power each row has the same error, so
# that the sum over a day has it too. Over rows of an hour the sum is right.
#
# Seen with @grnsft/if 1.1.0, an hour in rows of 1 s, and of 3600 s:
#   1 W: 0.00 Wh, 1.00 Wh
#   20 W: 21.60 Wh, 20.00 Wh
#   300 W: 298.80 Wh, 300.00 Wh
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
npm install --silent --no-audit --no-fund --prefix "$folder" @grnsft/if@1.1.0 > "$folder/install.log" 2>&1

sum_wh() { # KWH_OF_AN_HOUR DURATION_S
    {
        cat <<YAML
name: one device
initialize:
  plugins:
    convert:
      method: TimeConverter
      path: builtin
      config:
        input-parameter: energy-per-hour
        original-time-unit: hour
        new-time-unit: duration
        output-parameter: energy
tree:
  children:
    device:
      pipeline:
        compute: [convert]
      defaults: {duration: $2, energy-per-hour: $1}
      inputs:
YAML
        for ((second = 0; second < 3600; second += $2)); do
            printf "        - {timestamp: '2026-01-01T00:%02d:%02d.000Z'}\n" $((second / 60)) $((second % 60))
        done
    } > "$folder/manifest.yml"
    "$folder/node_modules/.bin/if-run" --manifest "$folder/manifest.yml" > "$folder/result" 2> "$folder/log"
    awk '/^ *outputs:/ { rows = 1 }
         rows && $1 == "energy:" { energy += $2 }
         END { printf "%.2f", 1000 * energy }' "$folder/result"
}

still=0
check() { # POWER_W KWH_OF_AN_HOUR WH_OF_SECONDS WH_OF_AN_HOUR
    local seen
    seen="$(sum_wh "$2" 1) Wh, $(sum_wh "$2" 3600) Wh"
    echo "$1 W: $seen"
    [[ "$seen" == "$3 Wh, $4 Wh" ]] || still=1
}
check 1 0.001 0.00 1.00
check 20 0.02 21.60 20.00
check 300 0.3 298.80 300.00
exit "$still"
