/* Stands between a process and the calls that write files and read the clock, and makes one of
   them go wrong. Loaded with LD_PRELOAD, controlled by environment variables:

   AT_SYSCALL_PREFIX  only calls on this path, or below it, count
   AT_SYSCALL_ACT     count, kill-before, kill-after, torn (write a half, then SIGKILL),
                      errno (fail), clock (the real-time clock jumps)
   AT_SYSCALL_NUMBER  the number of the call to act on, from 1; in each process by itself
   AT_SYSCALL_CALL    only calls of this name count (open, write, fsync, rename, ...)
   AT_SYSCALL_ERRNO   what errno fails with
   AT_SYSCALL_ALWAYS  errno from this call on; without it once
   AT_SYSCALL_JUMP_S  how far the clock jumps
   AT_SYSCALL_WORD    act only in processes whose command line contains this
   AT_SYSCALL_ONCE    a file that is made by the first process that acts: the others then don't
   AT_SYSCALL_LOG     a file to which every call that counted (count), or the first that was acted
                      on, is appended: the process's id, the call, the path

   at_syscall_arm() reads them again: a forked child arms itself. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum act { NOTHING, COUNT, KILL_BEFORE, KILL_AFTER, TORN, FAIL, CLOCK };

static enum act act = NOTHING;
static char prefix[PATH_MAX];
static size_t prefix_length;
static char once[PATH_MAX], log_path[PATH_MAX], only[32];
static long number, fail_with, jump_s;
static int always;
static atomic_long seen, clock_seen;
static atomic_int acted;

static void copy_variable(char *to, size_t size, const char *name)
{
    const char *value = getenv(name);
    snprintf(to, size, "%s", value ? value : "");
}

static long number_variable(const char *name)
{
    const char *value = getenv(name);
    return value ? strtol(value, NULL, 10) : 0;
}

/* Whether this process's command line, its words joined by spaces, contains AT_SYSCALL_WORD. */
static int is_asked_process(void)
{
    const char *word = getenv("AT_SYSCALL_WORD");
    if (!word || !*word)
        return 1;
    static char line[1 << 14];
    int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/cmdline", O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return 0;
    ssize_t length = syscall(SYS_read, fd, line, sizeof line - 1);
    syscall(SYS_close, fd);
    for (ssize_t i = 0; i < length; i++)
        if (!line[i])
            line[i] = ' ';
    line[length > 0 ? length : 0] = 0;
    return strstr(line, word) != NULL;
}

void at_syscall_arm(void)
{
    static const char *names[] = {"", "count", "kill-before", "kill-after", "torn", "errno", "clock"};
    const char *asked = getenv("AT_SYSCALL_ACT");
    act = NOTHING;
    atomic_store(&seen, 0);
    atomic_store(&clock_seen, 0);
    atomic_store(&acted, 0);
    copy_variable(prefix, sizeof prefix, "AT_SYSCALL_PREFIX");
    copy_variable(once, sizeof once, "AT_SYSCALL_ONCE");
    copy_variable(log_path, sizeof log_path, "AT_SYSCALL_LOG");
    copy_variable(only, sizeof only, "AT_SYSCALL_CALL");
    prefix_length = strlen(prefix);
    number = number_variable("AT_SYSCALL_NUMBER");
    fail_with = number_variable("AT_SYSCALL_ERRNO");
    jump_s = number_variable("AT_SYSCALL_JUMP_S");
    always = getenv("AT_SYSCALL_ALWAYS") != NULL;
    if (!asked || !is_asked_process())
        return;
    for (int i = COUNT; i <= CLOCK; i++)
        if (!strcmp(asked, names[i]))
            act = (enum act)i;
}

__attribute__((constructor)) static void begin(void)
{
    int before = errno;
    at_syscall_arm();
    errno = before;
}

static void note(const char *call, const char *path)
{
    if (!*log_path)
        return;
    char line[PATH_MAX + 64];
    int length = snprintf(line, sizeof line, "%d %s %s\n", (int)syscall(SYS_getpid), call,
                          path);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, log_path,
                          O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    syscall(SYS_write, fd, line, (size_t)length);
    syscall(SYS_close, fd);
}

/* The absolute path of a call's file; from a descriptor where there is no path. */
static void resolve(char *to, int folder, const char *path)
{
    char link[64];
    ssize_t length;
    if (path && *path == '/') {
        snprintf(to, PATH_MAX, "%s", path);
        return;
    }
    if (folder == AT_FDCWD)
        snprintf(link, sizeof link, "/proc/self/cwd");
    else
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    length = syscall(SYS_readlinkat, AT_FDCWD, link, to, PATH_MAX - 1);
    if (length < 0)
        length = 0;
    to[length] = 0;
    if (path && *path)
        snprintf(to + length, PATH_MAX - (size_t)length, "/%s", path);
}

static int takes_space(const char *call)
{
    return strcmp(call, "unlink") && strcmp(call, "rmdir");
}

static void kill_self(void)
{
    syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
    for (;;)
        syscall(SYS_pause);
}

/* What to do at this call: NOTHING, or the act. */
static enum act at(const char *call, int folder, const char *path)
{
    if (act == NOTHING || act == CLOCK)
        return NOTHING;
    int before = errno;
    char whole[PATH_MAX];
    enum act todo = NOTHING;
    if (*only && strcmp(only, call))
        return NOTHING;
    resolve(whole, folder, path);
    int inside = prefix_length && !strncmp(whole, prefix, prefix_length) &&
                 (!whole[prefix_length] || whole[prefix_length] == '/' || whole[prefix_length] == ' ');
    /* A full disk or a quota lets files be removed. */
    if (act == FAIL && (fail_with == ENOSPC || fail_with == EDQUOT) && !takes_space(call))
        inside = 0;
    if (act == TORN && strcmp(call, "write"))
        inside = 0;
    if (inside) {
        long mine = atomic_fetch_add(&seen, 1) + 1;
        if (act == COUNT)
            note(call, whole);
        else if (mine == number || (mine > number && act == FAIL && always))
            todo = act;
    }
    if (todo != NOTHING && *once && !(always && atomic_load(&acted))) {
        int fd = (int)syscall(SYS_openat, AT_FDCWD, once, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                              0600);
        if (fd < 0)
            todo = NOTHING;
        else
            syscall(SYS_close, fd);
    }
    if (todo != NOTHING) {
        if (!atomic_exchange(&acted, 1))
            note(call, whole);
        if (todo == KILL_BEFORE)
            kill_self();
    }
    errno = before;
    return todo;
}

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) \
        real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

#define GUARDED(call, folder, path, type, real_call) \
    do { \
        enum act todo = at(call, folder, path); \
        if (todo == FAIL) { \
            errno = (int)fail_with; \
            return -1; \
        } \
        type done = real_call; \
        if (todo == KILL_AFTER) \
            kill_self(); \
        return done; \
    } while (0)

#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | __O_TMPFILE)) { \
        va_list rest; \
        va_start(rest, flags); \
        mode = va_arg(rest, mode_t); \
        va_end(rest); \
    }

#define WRITES(flags) ((flags) & (O_CREAT | O_WRONLY | O_RDWR | O_TRUNC))

#define OPEN(name) \
    int name(const char *path, int flags, ...) \
    { \
        REAL(name); \
        MODE(flags) \
        if (!WRITES(flags)) \
            return real(path, flags, mode); \
        GUARDED("open", AT_FDCWD, path, int, real(path, flags, mode)); \
    }

#define OPENAT(name) \
    int name(int folder, const char *path, int flags, ...) \
    { \
        REAL(name); \
        MODE(flags) \
        if (!WRITES(flags)) \
            return real(folder, path, flags, mode); \
        GUARDED("open", folder, path, int, real(folder, path, flags, mode)); \
    }

OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

/* A half is written of what is longer than a byte; of a byte, nothing. */
#define WRITE(name, args, real_args, half_args) \
    ssize_t name args \
    { \
        REAL(name); \
        enum act todo = at("write", fd, NULL); \
        if (todo == FAIL) { \
            errno = (int)fail_with; \
            return -1; \
        } \
        if (todo == TORN) { \
            real half_args; \
            kill_self(); \
        } \
        ssize_t done = real real_args; \
        if (todo == KILL_AFTER) \
            kill_self(); \
        return done; \
    }

WRITE(write, (int fd, const void *data, size_t size), (fd, data, size), (fd, data, size / 2))
WRITE(pwrite, (int fd, const void *data, size_t size, off_t offset), (fd, data, size, offset),
      (fd, data, size / 2, offset))
WRITE(pwrite64, (int fd, const void *data, size_t size, off64_t offset), (fd, data, size, offset),
      (fd, data, size / 2, offset))
/* How shutil copies a file. */
WRITE(sendfile, (int fd, int from, off_t *offset, size_t size), (fd, from, offset, size),
      (fd, from, offset, size / 2))
WRITE(sendfile64, (int fd, int from, off64_t *offset, size_t size), (fd, from, offset, size),
      (fd, from, offset, size / 2))
WRITE(writev, (int fd, const struct iovec *parts, int count), (fd, parts, count),
      (fd, parts, count / 2))

int fsync(int fd)
{
    REAL(fsync);
    GUARDED("fsync", fd, NULL, int, real(fd));
}

int fdatasync(int fd)
{
    REAL(fdatasync);
    GUARDED("fsync", fd, NULL, int, real(fd));
}

int ftruncate(int fd, off_t size)
{
    REAL(ftruncate);
    GUARDED("ftruncate", fd, NULL, int, real(fd, size));
}

int ftruncate64(int fd, off64_t size)
{
    REAL(ftruncate64);
    GUARDED("ftruncate", fd, NULL, int, real(fd, size));
}

int rename(const char *from, const char *to)
{
    REAL(rename);
    GUARDED("rename", AT_FDCWD, to, int, real(from, to));
}

int renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    REAL(renameat);
    GUARDED("rename", to_folder, to, int, real(from_folder, from, to_folder, to));
}

int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
    REAL(renameat2);
    GUARDED("rename", to_folder, to, int, real(from_folder, from, to_folder, to, flags));
}

int link(const char *from, const char *to)
{
    REAL(link);
    GUARDED("link", AT_FDCWD, to, int, real(from, to));
}

int unlink(const char *path)
{
    REAL(unlink);
    GUARDED("unlink", AT_FDCWD, path, int, real(path));
}

int unlinkat(int folder, const char *path, int flags)
{
    REAL(unlinkat);
    GUARDED(flags & AT_REMOVEDIR ? "rmdir" : "unlink", folder, path, int,
            real(folder, path, flags));
}

int mkdir(const char *path, mode_t mode)
{
    REAL(mkdir);
    GUARDED("mkdir", AT_FDCWD, path, int, real(path, mode));
}

int mkdirat(int folder, const char *path, mode_t mode)
{
    REAL(mkdirat);
    GUARDED("mkdir", folder, path, int, real(folder, path, mode));
}

int rmdir(const char *path)
{
    REAL(rmdir);
    GUARDED("rmdir", AT_FDCWD, path, int, real(path));
}

static long jumped_s(void)
{
    if (act != CLOCK || atomic_fetch_add(&clock_seen, 1) + 1 < number)
        return 0;
    if (!atomic_exchange(&acted, 1))
        note("clock", "");
    return jump_s;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    REAL(clock_gettime);
    int done = real(clock, now);
    if (!done && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += jumped_s();
    return done;
}

time_t time(time_t *now)
{
    struct timespec exact;
    if (clock_gettime(CLOCK_REALTIME, &exact))
        return -1;
    if (now)
        *now = exact.tv_sec;
    return exact.tv_sec;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    REAL(gettimeofday);
    int done = real(now, zone);
    if (!done)
        now->tv_sec += jumped_s();
    return done;
}
