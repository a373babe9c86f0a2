"""Products of matrices on the host: one, in variants, and chains of them, planned and fused."""

from kernels.products.chain_plan import ChainPlan, Rates, plan_chain

__all__ = ["ChainPlan", "Rates", "plan_chain"]
