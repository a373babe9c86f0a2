"""The energy model's terms, one file for each kind: Choi & Vuduc 2016, eq. 9, and clock trees.

E = sum_k n_k c_k V_dom(k)^2 + (c1p V_p + c1m V_m + P_misc) T
    [+ (g_p V_p^2 f_p + g_m V_m^2 f_m) T]

A kernel without counts has two lumped terms instead of the sum: a V_p^2 + b V_m^2.
"""
