#!/usr/bin/env bash
# FINDING: JAX 0.10.2's cost_analysis counts the body of a loop once, however often it runs. The flops and bytes
# of a compiled function, which rooflines are drawn from, are those of one turn of lax.fori_loop, lax.scan or
# lax.map, although their number of turns is known when it is compiled. 100 time steps cost as much as one; a
# direct N-body sum in 10 tiles has a tenth of the flops of the same sum in one piece, so its arithmetic
# intensity falls too. Nothing says that a loop is in it.
#
# Seen with jax 0.10.2, on the CPU:
#   a product of matrices, 256 wide: 33.6 Mflop; 100 of them in lax.scan: 33.6 Mflop
#   forces on 1000 bodies at once: 15.0 Mflop, 416.6 flop/byte; in 10 tiles: 1.5 Mflop, 47.9 flop/byte
#   the forces of both agree
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet jax==0.10.2

cat > "$folder/program.py" <<'PYTHON'
import sys

import jax
import jax.numpy as jnp
from jax import lax


def cost(function, argument) -> tuple[float, float]:
    found = jax.jit(function).lower(argument).compile().cost_analysis()
    return found["flops"] / 1e6, found["flops"] / found["bytes accessed"]


def forces(targets, sources):
    apart = sources[None] - targets[:, None]
    squares = (apart * apart).sum(-1) + 1e-3
    return (apart * (squares**-1.5)[..., None]).sum(1)


def at_once(bodies):
    return forces(bodies, bodies)


def tiled(bodies):
    return lax.map(lambda tile: forces(tile, bodies), bodies.reshape(10, -1, 3)).reshape(-1, 3)


def main() -> int:
    matrix = jnp.ones((256, 256))
    one, _ = cost(lambda x: x @ matrix, matrix)
    many, _ = cost(lambda x: lax.scan(lambda y, _: (y @ matrix, None), x, length=100)[0], matrix)
    print(f"a product of matrices, 256 wide: {one:.1f} Mflop; 100 of them in lax.scan: {many:.1f} Mflop")
    bodies = jax.random.normal(jax.random.key(0), (1000, 3))
    (all_flops, all_intensity), (tile_flops, tile_intensity) = cost(at_once, bodies), cost(tiled, bodies)
    print(
        f"forces on 1000 bodies at once: {all_flops:.1f} Mflop, {all_intensity:.1f} flop/byte; "
        f"in 10 tiles: {tile_flops:.1f} Mflop, {tile_intensity:.1f} flop/byte"
    )
    agree = bool(jnp.allclose(at_once(bodies), tiled(bodies), rtol=1e-3, atol=1e-2))
    print(f"the forces of both {'agree' if agree else 'differ'}")
    once = many < 1.1 * one and tile_flops < 0.11 * all_flops
    return 0 if agree and once and tile_intensity < 0.5 * all_intensity else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
JAX_PLATFORMS=cpu "$folder/venv/bin/python" "$folder/program.py"
