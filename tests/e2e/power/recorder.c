/* Records what a process asks of the disk below one folder, for tests of power loss.
 *
 * Preloaded (LD_PRELOAD). Each change is written to POWER_LOG before it is carried out, so that after a
 * SIGKILL the log holds at least what the disk holds. Changes under way are serialised: the log's order is
 * theirs. A flush is two records: what was recorded before it began is durable once it has ended.
 *
 * record: op (1 byte), offset (8), bytes of path (4), bytes of data (4), path, data; little endian
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { WRITE = 'w', TRUNCATE = 't', FLUSH = 'f', FLUSHED = 'F', RENAME = 'r', UNLINK = 'u', CREATE = 'c' };

static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;
static const char *root;
static size_t root_length;
static int log_fd = -1;

static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static ssize_t (*real_write)(int, const void *, size_t);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);
static int (*real_ftruncate)(int, off_t);
static int (*real_rename)(const char *, const char *);
static int (*real_unlink)(const char *);
static int (*real_open)(const char *, int, ...);

__attribute__((constructor)) static void begin(void) {
    real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    real_write = dlsym(RTLD_NEXT, "write");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    real_ftruncate = dlsym(RTLD_NEXT, "ftruncate64");
    real_rename = dlsym(RTLD_NEXT, "rename");
    real_unlink = dlsym(RTLD_NEXT, "unlink");
    real_open = dlsym(RTLD_NEXT, "open64");
    root = getenv("POWER_ROOT");
    const char *log = getenv("POWER_LOG");
    if (root && log) {
        root_length = strlen(root);
        log_fd = real_open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    }
}

static int is_ours(const char *path) {
    size_t length = strlen(path);
    int is_shared_memory = length > 4 && !strcmp(path + length - 4, "-shm");
    return log_fd >= 0 && !strncmp(path, root, root_length) && !is_shared_memory;
}

static int path_of(int fd, char *path) {
    char link[64];
    if (log_fd < 0 || fd == log_fd) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    return is_ours(path) && !strstr(path, " (deleted)");
}

static void record(char op, uint64_t offset, const char *path, const void *data, uint32_t size) {
    uint32_t path_size = strlen(path);
    char head[17];
    head[0] = op;
    memcpy(head + 1, &offset, 8);
    memcpy(head + 9, &path_size, 4);
    memcpy(head + 13, &size, 4);
    struct iovec parts[3] = {{head, sizeof head}, {(void *)path, path_size}, {(void *)data, size}};
    if (writev(log_fd, parts, 3) != (ssize_t)(sizeof head + path_size + size)) abort();
}

ssize_t pwrite64(int fd, const void *data, size_t size, off_t offset) {
    char path[PATH_MAX];
    if (!path_of(fd, path)) return real_pwrite(fd, data, size, offset);
    pthread_mutex_lock(&order);
    record(WRITE, offset, path, data, size);
    ssize_t written = real_pwrite(fd, data, size, offset);
    pthread_mutex_unlock(&order);
    return written;
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) { return pwrite64(fd, data, size, offset); }

ssize_t write(int fd, const void *data, size_t size) {
    char path[PATH_MAX];
    if (!path_of(fd, path)) return real_write(fd, data, size);
    pthread_mutex_lock(&order);
    record(WRITE, lseek(fd, 0, SEEK_CUR), path, data, size);
    ssize_t written = real_write(fd, data, size);
    pthread_mutex_unlock(&order);
    return written;
}

static int flush(int fd, int (*real)(int)) {
    char path[PATH_MAX];
    if (!path_of(fd, path)) return real(fd);
    static uint64_t flushes;
    pthread_mutex_lock(&order);
    uint64_t number = (uint64_t)getpid() << 40 | ++flushes; // processes share the log
    record(FLUSH, number, path, "", 0);
    pthread_mutex_unlock(&order);
    int result = real(fd);
    pthread_mutex_lock(&order);
    record(FLUSHED, number, path, "", 0);
    pthread_mutex_unlock(&order);
    return result;
}

int fsync(int fd) { return flush(fd, real_fsync); }

int fdatasync(int fd) { return flush(fd, real_fdatasync); }

int ftruncate64(int fd, off_t size) {
    char path[PATH_MAX];
    if (!path_of(fd, path)) return real_ftruncate(fd, size);
    pthread_mutex_lock(&order);
    record(TRUNCATE, size, path, "", 0);
    int result = real_ftruncate(fd, size);
    pthread_mutex_unlock(&order);
    return result;
}

int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

int rename(const char *from, const char *to) {
    if (!is_ours(from)) return real_rename(from, to);
    pthread_mutex_lock(&order);
    record(RENAME, 0, from, to, strlen(to));
    int result = real_rename(from, to);
    pthread_mutex_unlock(&order);
    return result;
}

int unlink(const char *path) {
    if (!is_ours(path)) return real_unlink(path);
    pthread_mutex_lock(&order);
    record(UNLINK, 0, path, "", 0);
    int result = real_unlink(path);
    pthread_mutex_unlock(&order);
    return result;
}

static int opened(const char *path, int flags, mode_t mode) {
    if (!is_ours(path) || !(flags & (O_CREAT | O_TRUNC))) return real_open(path, flags, mode);
    pthread_mutex_lock(&order);
    if (access(path, F_OK)) record(CREATE, 0, path, "", 0);
    else if (flags & O_TRUNC) record(TRUNCATE, 0, path, "", 0);
    int result = real_open(path, flags, mode);
    pthread_mutex_unlock(&order);
    return result;
}

int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return opened(path, flags, mode);
}

int open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return opened(path, flags, mode);
}
