/* A disk with faults below one folder, for tests: errors on one call in N, read-only, or slow.
 *
 * Preloaded (LD_PRELOAD). FAULT_CONTROL is a file of two integers, which the test changes while the process runs:
 * what happens (0: nothing), and its number N (one call in N) or the milliseconds of each call.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { NONE, ERRORS, READ_ONLY, SLOW, FULL };

static const char *root;
static size_t root_length;
static volatile int32_t *control;
static atomic_int calls;

static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static ssize_t (*real_pread)(int, void *, size_t, off_t);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);
static int (*real_ftruncate)(int, off_t);
static int (*real_open)(const char *, int, ...);

__attribute__((constructor)) static void begin(void) {
    real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    real_pread = dlsym(RTLD_NEXT, "pread64");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    real_ftruncate = dlsym(RTLD_NEXT, "ftruncate64");
    real_open = dlsym(RTLD_NEXT, "open64");
    root = getenv("FAULT_ROOT");
    const char *path = getenv("FAULT_CONTROL");
    if (!root || !path) return;
    root_length = strlen(root);
    int fd = real_open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    void *shared = mmap(NULL, 8, PROT_READ, MAP_SHARED, fd, 0);
    if (shared != MAP_FAILED) control = shared;
    close(fd);
}

static int is_ours(const char *path) { return control && !strncmp(path, root, root_length); }

static int on_our_disk(int fd) {
    char link[64], path[PATH_MAX];
    if (!control || !control[0]) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    return is_ours(path);
}

/* Returns whether this call fails, with errno set. */
static int fails(int writes) {
    switch (control[0]) {
    case ERRORS:
        if (atomic_fetch_add(&calls, 1) % control[1]) return 0;
        errno = EIO;
        return 1;
    case READ_ONLY:
        errno = EROFS;
        return writes;
    case FULL:
        errno = ENOSPC;
        return writes;
    case SLOW:
        usleep(1000 * control[1]);
    }
    return 0;
}

ssize_t pwrite64(int fd, const void *data, size_t size, off_t offset) {
    if (on_our_disk(fd) && fails(1)) return -1;
    return real_pwrite(fd, data, size, offset);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) { return pwrite64(fd, data, size, offset); }

ssize_t pread64(int fd, void *data, size_t size, off_t offset) {
    if (on_our_disk(fd) && fails(0)) return -1;
    return real_pread(fd, data, size, offset);
}

ssize_t pread(int fd, void *data, size_t size, off_t offset) { return pread64(fd, data, size, offset); }

int fsync(int fd) { return on_our_disk(fd) && fails(1) ? -1 : real_fsync(fd); }

int fdatasync(int fd) { return on_our_disk(fd) && fails(1) ? -1 : real_fdatasync(fd); }

int ftruncate64(int fd, off_t size) { return on_our_disk(fd) && fails(1) ? -1 : real_ftruncate(fd, size); }

int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, int) : 0;
    va_end(rest);
    if (is_ours(path) && control[0] && fails(flags & O_CREAT && access(path, F_OK))) return -1;
    return real_open(path, flags, mode);
}

int open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, int) : 0;
    va_end(rest);
    return open64(path, flags, mode);
}
