// exafmm-t's Laplace potential in one precision: compiled twice, with -DFLOAT=0, and with -DFLOAT=1
// -Dexafmm_t=exafmm_t_single, because a macro chooses its type.
#include <immintrin.h>
#include "build_tree.h"
#include "build_list.h"
#include "laplace.h"
#include "driver.h"

namespace exafmm_t {
// Potentials only: P2P, M2P and L2P call gradient_P2P, which is here exafmm-t's own potential_P2P.
class PotentialFmm : public LaplaceFmm {
 public:
  using LaplaceFmm::LaplaceFmm;
  void gradient_P2P(RealVec& sc, RealVec& sv, RealVec& tc, RealVec& tv) override { potential_P2P(sc, sv, tc, tv); }
};
driver::Result run(const driver::Arguments& a) {
  driver::Result result;
  double began = driver::now();
  Bodies<real_t> sources(a.n), targets(a.n);
  {
    auto data = driver::read(a);
    for (long i = 0; i < a.n; i++) {
      sources[i].ibody = targets[i].ibody = i;
      sources[i].q = data[4*i+3];
      for (int d = 0; d < 3; d++) sources[i].X[d] = targets[i].X[d] = data[4*i+d];
    }
  }
  PotentialFmm fmm(a.order, a.q);
  NodePtrs<real_t> leafs, nonleafs;
  get_bounds(sources, targets, fmm.x0, fmm.r0);
  char name[512];  // its file holds the operators of one r0
  snprintf(name, sizeof name, "%s/exafmm_t_%c_p%d_%a.dat", driver::cache(),
           sizeof(real_t) == 4 ? 'f' : 'd', a.order, (double)fmm.r0);
  fmm.filename = name;
  Nodes<real_t> nodes = build_tree(sources, targets, leafs, nonleafs, fmm);
  Bodies<real_t>().swap(sources);
  Bodies<real_t>().swap(targets);
  // Potentials only: one value for a target in place of four.
  for (auto leaf : leafs) std::vector<real_t>(leaf->ntrgs).swap(leaf->trg_value);
  init_rel_coord();
  build_list(nodes, fmm);
  fmm.M2L_setup(nonleafs);
  result.tree_s = driver::now() - began;
  began = driver::now();
  fmm.precompute();
  result.setup_s = driver::now() - began;
  result.potentials.resize(a.n);
  for (int k = -1; k < a.repeats; k++) {  // -1: not timed
#pragma omp parallel for
    for (size_t i = 0; i < nodes.size(); i++) {
      auto& node = nodes[i];
      std::fill(node.up_equiv.begin(), node.up_equiv.end(), real_t(0));
      std::fill(node.dn_equiv.begin(), node.dn_equiv.end(), real_t(0));
      std::fill(node.trg_value.begin(), node.trg_value.end(), real_t(0));
    }
    bool verbose = k >= 0 && getenv("VERBOSE");
    began = driver::now();
    fmm.upward_pass(nodes, leafs, verbose);
    fmm.downward_pass(nodes, leafs, verbose);
    double evaluated = driver::now() - began;
#pragma omp parallel for
    for (size_t i = 0; i < leafs.size(); i++)
      for (int j = 0; j < leafs[i]->ntrgs; j++) result.potentials[leafs[i]->itrgs[j]] = leafs[i]->trg_value[j];
    double all = driver::now() - began;
    if (k < 0) result.first_answer_s = driver::since_start();
    else { result.evaluation_s.push_back(evaluated); result.in_order_s.push_back(all); }
  }
  result.resident_mb = driver::peak_mb();
  return result;
}
}  // namespace exafmm_t
