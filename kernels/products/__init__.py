"""Matrix products on the host: single products in variants, and planned and fused chains."""

from kernels.products.chain_plan import ChainPlan, Rates, plan_chain
from kernels.products.chain_run import multiply_chain

__all__ = ["ChainPlan", "Rates", "multiply_chain", "plan_chain"]
