#!/usr/bin/env bash
# Profiles of Caliper 2.14.0 in FOLDER, made by itself: tests/other_tools/caliper_profiles.sh SOURCE FOLDER
#
# SOURCE: a clone of github.com/LLNL/Caliper, as no registry has Caliper. It needs cmake, and mpicxx and
# mpiexec of an MPI. Two ranks sleep 20 and 30 ms in one region, 100 and 150 ms in another.
set -euo pipefail
source=$(realpath "$1")
out=$(realpath "$2")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
git clone --quiet --branch v2.14.0 "$source" source
cmake -S source -B build -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$folder/caliper" \
    -DWITH_MPI=ON -DWITH_TOOLS=OFF -DBUILD_TESTING=OFF \
    -DMPI_CXX_COMPILER="$(command -v mpicxx)" -DMPI_C_COMPILER="$(command -v mpicc)"
make -C build -j2 install

cat > sleeps.cpp <<'CPP'
#include <caliper/cali-manager.h>
#include <caliper/cali.h>
#include <mpi.h>

#include <chrono>
#include <thread>

static void solve(int ms) {
    CALI_CXX_MARK_FUNCTION;
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

int main(int argc, char** argv) {
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    cali::ConfigManager profile(argv[1]);
    profile.start();
    CALI_MARK_BEGIN("main");
    CALI_MARK_BEGIN("coarse");
    solve(20 + 10 * rank);
    CALI_MARK_END("coarse");
    CALI_MARK_BEGIN("fine");
    solve(100 + 50 * rank);
    CALI_MARK_END("fine");
    CALI_MARK_END("main");
    profile.flush();
    MPI_Finalize();
}
CPP
mpicxx -std=c++17 sleeps.cpp -I caliper/include -L caliper/lib -lcaliper -Wl,-rpath,"$folder/caliper/lib" -o sleeps
for run in 1 2; do mpiexec -n 2 ./sleeps "spot(output=caliper_$run.cali)"; done
mpiexec -n 2 ./sleeps "hatchet-region-profile(output=caliper_ranks.cali)"
cp ./*.cali "$out"
