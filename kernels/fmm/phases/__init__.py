"""The compiled loops of the phases of an evaluation.

``pair_loops``: sums over pairs of points, used by all steps that start or end at points.
``p2m_p2l_m2p_l2p``: the steps between points and surfaces (UP, X, W, DOWN). ``u_p2p``,
``u_schedule``: the U phase and its distribution over threads. ``v_fourier``, ``v_m2l``,
``v_slabs``: the V phase's transforms, its products of spectra, and its slabs of frequencies. M2M
and L2L are matrix products in :mod:`kernels.fmm.method`.
"""
