"""Products of matrices on the host: one, in variants, and chains of them, planned and fused."""

from kernels.products.chain_plan import ChainPlan, Rates, plan_chain
from kernels.products.chain_run import multiply_chain

__all__ = ["ChainPlan", "Rates", "multiply_chain", "plan_chain"]
