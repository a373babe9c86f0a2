"""How often the parts of gpu_stencil's program run, by brute force."""

from __future__ import annotations

from collections import Counter

import numpy as np

from kernels.cuda.stencils.stencil import GpuStencilParams
from kernels.stencils.counts import inner_pieces, wavefronts


def executions(params: GpuStencilParams) -> Counter[str]:
    """How often each loop's body of the program runs in an iteration, by sets of (step, point) of
    every prism."""
    host, along = params.on_host(), params.size_2 or 1
    done: Counter[str] = Counter()
    for wavefront in wavefronts(host):
        done["launches"] += 1
        rows = wavefront.steps.shape[1]
        pieces = inner_pieces(host, rows) or [(np.zeros((1, rows)), np.ones((1, rows)))]
        across = pieces[0][1] - pieces[0][0]
        for steps, lows, highs in zip(
            wavefront.steps.tolist(), wavefront.lows.tolist(), wavefront.highs.tolist(), strict=True
        ):
            own = {
                (step, point)
                for step, low, high in zip(steps, lows, highs, strict=True)
                for point in range(low, high)
            }
            needed = {(t - 1, near) for t, s in own for near in (s - 1, s, s + 1)} - own
            outside = {(t, s) for t, s in needed if not 0 <= s < params.size_1}
            # Fixed values serve every second step.
            fixed = len({(t % 2, s) for t, s in outside}) * along
            if params.axes == 2:
                fixed += 2 * len({((t - 1) % 2, s) for t, s in own})
            written = {
                (t, s)
                for t, s in own
                if t == params.steps
                or any(
                    0 <= near < params.size_1 and (t + 1, near) not in own
                    for near in (s - 1, s, s + 1)
                )
            }
            done["points"] += len(own) * along
            done["brought in"] += len(needed - outside) * along + fixed
            done["fixed"] += fixed
            done["written out"] += len(written) * along
            for columns in across.tolist():
                full = [
                    (high - low, own_columns)
                    for low, high, own_columns in zip(lows, highs, columns, strict=True)
                    if high > low and own_columns > 0
                ]
                done["rows of pieces"] += len(full)
                done["pieces"] += bool(full)
                along_1, along_2 = params.block
                done["trips"] += sum(-(-n // along_1) * -(-int(m) // along_2) for n, m in full)
    return done
