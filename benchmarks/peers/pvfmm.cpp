// PVFMM's Laplace potential of particles at each other.
#include <mpi.h>
#include <omp.h>
#include <pvfmm.hpp>
#include "driver.h"
extern "C" void openblas_set_num_threads(int);

template <class Real> driver::Result run(const driver::Arguments& a) {
  driver::Result result;
  double began = driver::now();
  std::vector<Real> x(3 * a.n), charges(a.n), potentials;
  {
    auto data = driver::read(a);
    const Real below_one = std::nextafter(Real(1), Real(0));  // PVFMM wants [0, 1)
    for (long i = 0; i < a.n; i++) {
      for (int d = 0; d < 3; d++) x[3*i+d] = std::max(Real(0), std::min(Real(data[4*i+d]), below_one));
      charges[i] = data[4*i+3];
    }
  }
  const auto& kernel = pvfmm::LaplaceKernel<Real>::potential();
  auto* tree = pvfmm::PtFMM_CreateTree(x, charges, x, MPI_COMM_WORLD, a.q, pvfmm::FreeSpace);
  result.tree_s = driver::now() - began;
  std::vector<Real>().swap(x);
  began = driver::now();
  pvfmm::PtFMM<Real> operators;
  operators.Initialize(a.order, MPI_COMM_WORLD, &kernel);
  result.setup_s = driver::now() - began;
  began = driver::now();
  tree->SetupFMM(&operators);
  result.tree_s += driver::now() - began;
  pvfmm::PtFMM_Evaluate(tree, potentials, a.n);  // not timed
  result.first_answer_s = driver::since_start();
  bool verbose = getenv("VERBOSE");
  if (verbose) pvfmm::Profile::Enable(true);
  for (int k = 0; k < a.repeats; k++) {
    tree->ClearFMMData();
    began = driver::now();
    tree->RunFMM();
    result.evaluation_s.push_back(driver::now() - began);
  }
  MPI_Comm comm = MPI_COMM_WORLD;
  if (verbose) pvfmm::Profile::print(&comm);
  // With the potentials gathered in the caller's order, which PVFMM's function does after RunFMM.
  tree->ClearFMMData();
  began = driver::now();
  pvfmm::PtFMM_Evaluate(tree, potentials, a.n);
  result.in_order_s.push_back(driver::now() - began);
  result.resident_mb = driver::peak_mb();
  result.potentials.assign(potentials.begin(), potentials.end());
  delete tree;
  return result;
}

int main(int argc, char** argv) {
  auto a = driver::arguments(argc, argv);
  if (a.order % 2) { fprintf(stderr, "PVFMM's order is even\n"); return 2; }
  setenv("PVFMM_DIR", driver::cache(), 1);
  omp_set_num_threads(a.threads);
  openblas_set_num_threads(1);  // it calls BLAS from within parallel regions
  MPI_Init(&argc, &argv);
  auto result = a.precision == "double" ? run<double>(a) : run<float>(a);
  driver::print("pvfmm", a, result);
  fflush(stdout);
  MPI_Finalize();
}
