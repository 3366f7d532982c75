/* Records, in order, what a process does to its LMDB file and when it acknowledged: writes, syncs, acknowledgements.
 *
 * Preloaded into the store process of `test_power_cuts`. A record is one byte of kind, eight of offset, four of length,
 * then the bytes: W a write that is not durable yet, Y the last W is (the descriptor was opened with O_DSYNC), S all
 * before is (fdatasync, fsync), A a line of the acknowledgement file, T the file has this length now, M it was mapped
 * for writing (which this recorder cannot follow, so the test must fail). Files are told apart by their names.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { DATA = 1, DURABLE = 2, ACKS = 4, MAX_FD = 4096 };
static unsigned char kinds[MAX_FD];
static int trace = -1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define REAL(result, name, ...) static result (*real_##name)(__VA_ARGS__); \
    if (!real_##name) real_##name = dlsym(RTLD_NEXT, #name)

static int kind_of(int fd) { return fd >= 0 && fd < MAX_FD ? kinds[fd] : 0; }

static void put(const void *data, size_t size) {
    const char *at = data;
    while (size) {
        ssize_t done = syscall(SYS_write, trace, at, size);
        if (done <= 0) abort();
        at += done;
        size -= done;
    }
}

static void record(char kind, uint64_t offset, const struct iovec *parts, int count) {
    char head[13];
    uint32_t size = 0;
    for (int i = 0; i < count; i++) size += parts[i].iov_len;
    pthread_mutex_lock(&lock);
    if (trace < 0) trace = syscall(SYS_openat, AT_FDCWD, getenv("FAULT_TRACE"), O_WRONLY | O_CREAT | O_APPEND, 0600);
    head[0] = kind;
    memcpy(head + 1, &offset, 8);
    memcpy(head + 9, &size, 4);
    put(head, sizeof head);
    for (int i = 0; i < count; i++) put(parts[i].iov_base, parts[i].iov_len);
    pthread_mutex_unlock(&lock);
}

static void before(int fd, uint64_t offset, const struct iovec *parts, int count) {
    if (kind_of(fd) & DATA) record('W', offset, parts, count);
}

static void after(int fd) {
    if (kind_of(fd) & DURABLE) record('Y', 0, NULL, 0);
}

static int opened(int fd, const char *path, int flags) {
    size_t size = strlen(path);
    if (fd < 0 || fd >= MAX_FD) return fd;
    kinds[fd] = 0;
    if (size >= 8 && !strcmp(path + size - 8, "data.mdb") && (flags & O_ACCMODE) != O_RDONLY)
        kinds[fd] = DATA | (flags & O_DSYNC ? DURABLE : 0);
    if (size >= 5 && !strcmp(path + size - 5, ".acks")) kinds[fd] = ACKS;
    return fd;
}

#define OPEN(name) int name(const char *path, int flags, ...) { \
    REAL(int, name, const char *, int, ...); \
    va_list more; va_start(more, flags); int mode = va_arg(more, int); va_end(more); \
    return opened(real_##name(path, flags, mode), path, flags); }
OPEN(open)
OPEN(open64)

#define OPENAT(name) int name(int at, const char *path, int flags, ...) { \
    REAL(int, name, int, const char *, int, ...); \
    va_list more; va_start(more, flags); int mode = va_arg(more, int); va_end(more); \
    return opened(real_##name(at, path, flags, mode), path, flags); }
OPENAT(openat)
OPENAT(openat64)

int close(int fd) {
    REAL(int, close, int);
    if (fd >= 0 && fd < MAX_FD) kinds[fd] = 0;
    return real_close(fd);
}

#define PWRITE(name) ssize_t name(int fd, const void *data, size_t size, off64_t offset) { \
    REAL(ssize_t, name, int, const void *, size_t, off64_t); \
    struct iovec part = {(void *)data, size}; \
    before(fd, offset, &part, 1); \
    ssize_t done = real_##name(fd, data, size, offset); \
    after(fd); return done; }
PWRITE(pwrite)
PWRITE(pwrite64)

#define PWRITEV(name) ssize_t name(int fd, const struct iovec *parts, int count, off64_t offset) { \
    REAL(ssize_t, name, int, const struct iovec *, int, off64_t); \
    before(fd, offset, parts, count); \
    ssize_t done = real_##name(fd, parts, count, offset); \
    after(fd); return done; }
PWRITEV(pwritev)
PWRITEV(pwritev64)

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(ssize_t, writev, int, const struct iovec *, int);
    if (kind_of(fd) & DATA) before(fd, lseek64(fd, 0, SEEK_CUR), parts, count);
    ssize_t done = real_writev(fd, parts, count);
    after(fd);
    return done;
}

ssize_t write(int fd, const void *data, size_t size) {
    REAL(ssize_t, write, int, const void *, size_t);
    struct iovec part = {(void *)data, size};
    if (kind_of(fd) & ACKS) record('A', 0, &part, 1);
    if (kind_of(fd) & DATA) before(fd, lseek64(fd, 0, SEEK_CUR), &part, 1);
    ssize_t done = real_write(fd, data, size);
    after(fd);
    return done;
}

#define SYNC(name) int name(int fd) { \
    REAL(int, name, int); \
    int done = real_##name(fd); \
    if (!done && kind_of(fd) & DATA) record('S', 0, NULL, 0); \
    return done; }
SYNC(fdatasync)
SYNC(fsync)

#define TRUNCATE(name) int name(int fd, off64_t size) { \
    REAL(int, name, int, off64_t); \
    if (kind_of(fd) & DATA) record('T', size, NULL, 0); \
    return real_##name(fd, size); }
TRUNCATE(ftruncate)
TRUNCATE(ftruncate64)

#define MMAP(name) void *name(void *address, size_t size, int access, int flags, int fd, off64_t offset) { \
    REAL(void *, name, void *, size_t, int, int, int, off64_t); \
    if (kind_of(fd) & DATA && access & PROT_WRITE && flags & MAP_SHARED) record('M', 0, NULL, 0); \
    return real_##name(address, size, access, flags, fd, offset); }
MMAP(mmap)
MMAP(mmap64)
