// Shared by the drivers: reading points, time since the process's start, peak memory, direct sums,
// and printing the line of JSON. fmm_peers.py describes the arguments and the output.
#pragma once
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <time.h>
#include <unistd.h>
#include <vector>

namespace driver {
struct Arguments {
  std::string points, precision;
  long n; int order, q, threads, repeats;
};
struct Result {
  std::vector<double> evaluation_s, in_order_s;
  std::vector<double> potentials;  // in the caller's order
  double first_answer_s = 0, tree_s = 0, setup_s = 0, resident_mb = 0;
};
inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
inline double since_start() {  // to 0.01 s, as the kernel knows it
  FILE* f = fopen("/proc/self/stat", "r");
  char text[4096]; size_t got = fread(text, 1, sizeof text - 1, f); fclose(f); text[got] = 0;
  char* at = strrchr(text, ')') + 2;  // field 3
  for (int i = 3; i < 22; i++) at = strchr(at, ' ') + 1;
  timespec t; clock_gettime(CLOCK_BOOTTIME, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec - strtod(at, nullptr) / sysconf(_SC_CLK_TCK);
}
inline const char* cache() {  // directory of the operators
  const char* folder = getenv("FMM_PEERS_CACHE");
  if (!folder) { fprintf(stderr, "FMM_PEERS_CACHE names no folder\n"); exit(2); }
  return folder;
}
inline double peak_mb() {
  FILE* f = fopen("/proc/self/status", "r");
  char line[256]; double kb = 0;
  while (fgets(line, sizeof line, f)) if (!strncmp(line, "VmHWM:", 6)) kb = atof(line + 6);
  fclose(f);
  return kb / 1024;
}
inline std::vector<double> read(const Arguments& a) {
  std::vector<double> data(4 * a.n);
  FILE* f = fopen(a.points.c_str(), "rb");
  if (!f || (long)fread(data.data(), 32, a.n, f) != a.n) { fprintf(stderr, "cannot read %ld points of %s\n", a.n, a.points.c_str()); exit(2); }
  fclose(f);
  return data;
}
inline double error(const Arguments& a, const std::vector<double>& computed) {
  auto d = read(a);
  long count = std::min(a.n, 1000L);
  double above = 0, below = 0;
#pragma omp parallel for reduction(+ : above, below)
  for (long k = 0; k < count; k++) {
    long i = k * a.n / count;
    double sum = 0;
    for (long j = 0; j < a.n; j++) {
      double x = d[4*j] - d[4*i], y = d[4*j+1] - d[4*i+1], z = d[4*j+2] - d[4*i+2], r2 = x*x + y*y + z*z;
      if (r2 > 0) sum += d[4*j+3] / std::sqrt(r2);
    }
    sum /= 4 * M_PI;
    above += (computed[i] - sum) * (computed[i] - sum);
    below += sum * sum;
  }
  return std::sqrt(above / below);
}
inline Arguments arguments(int argc, char** argv) {
  if (argc != 8) { fprintf(stderr, "%s POINTS N ORDER Q THREADS double|single REPEATS\n", argv[0]); exit(2); }
  Arguments a{argv[1], argv[6], atol(argv[2]), atoi(argv[3]), atoi(argv[4]), atoi(argv[5]), atoi(argv[7])};
  if (a.precision != "double" && a.precision != "single") { fprintf(stderr, "double or single\n"); exit(2); }
  return a;
}
inline void list(const char* name, const std::vector<double>& v) {
  printf("\"%s\": [", name);
  for (size_t i = 0; i < v.size(); i++) printf("%s%.6f", i ? ", " : "", v[i]);
  printf("], ");
}
inline void print(const char* code, const Arguments& a, const Result& r) {
  double e = error(a, r.potentials);
  printf("{\"code\": \"%s\", \"n\": %ld, \"order\": %d, \"q\": %d, \"threads\": %d, \"precision\": \"%s\", ",
         code, a.n, a.order, a.q, a.threads, a.precision.c_str());
  list("evaluation_s", r.evaluation_s);
  list("in_order_s", r.in_order_s);
  printf("\"tree_s\": %.6f, \"setup_s\": %.6f, \"first_answer_s\": %.3f, \"resident_mb\": %.1f, \"error\": %.6e, \"computes\": \"potential\"}\n",
         r.tree_s, r.setup_s, r.first_answer_s, r.resident_mb, e);
}
}  // namespace driver
