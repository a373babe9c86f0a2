// The main program of exafmm_t.cpp, for both precisions.
#include <omp.h>
#include "driver.h"
namespace exafmm_t { driver::Result run(const driver::Arguments&); }
namespace exafmm_t_single { driver::Result run(const driver::Arguments&); }
extern "C" void openblas_set_num_threads(int);
int main(int argc, char** argv) {
  auto a = driver::arguments(argc, argv);
  omp_set_num_threads(a.threads);
  openblas_set_num_threads(1);  // it calls BLAS from within parallel regions
  driver::print("exafmm-t", a, a.precision == "double" ? exafmm_t::run(a) : exafmm_t_single::run(a));
}
