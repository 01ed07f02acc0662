/* A disk that fails on request, for every process that has this library preloaded.
 *
 * What it shall do stands in a small file that all processes map (see shim.py): which paths are
 * meant, which process (0: all), and after how many operations or bytes what happens. Operations
 * that change something below these paths are counted: open for writing, write, rename, mkdir,
 * unlink, rmdir, fsync, ftruncate, chmod.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum { OFF, COUNT, KILL, TEAR, FULL, READ_ONLY, BROKEN };

struct state {
    long mode, pid, count, at, bytes, hits;
    char prefix[1024];
};

static struct state *state;

#define REAL(name) __typeof__(&name) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("DGBENCH_FAULT_STATE");
    if (!path) return;
    __typeof__(&open) real = (__typeof__(&open))dlsym(RTLD_NEXT, "open");
    int file = real(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return;
    void *found = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (found != MAP_FAILED) state = found;
}

static int awake(void) {
    return state && state->mode && (!state->pid || state->pid == getpid());
}

static int meant(const char *path) {
    size_t length = strlen(state->prefix);
    return length && !strncmp(path, state->prefix, length) &&
           (path[length] == '/' || path[length] == 0);
}

static int meant_at(int folder, const char *path) {
    char full[2 * PATH_MAX], link[64];
    if (path[0] == '/') return meant(path);
    if (folder == AT_FDCWD) {
        if (!getcwd(full, PATH_MAX)) return 0;
    } else {
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        ssize_t length = readlink(link, full, PATH_MAX - 1);
        if (length < 0) return 0;
        full[length] = 0;
    }
    strncat(full, "/", 2);
    strncat(full, path, PATH_MAX - 1);
    return meant(full);
}

static int meant_fd(int file) {
    char link[64], full[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, full, sizeof full - 1);
    if (length < 0) return 0;
    full[length] = 0;
    return meant(full);
}

static void die(void) {
    __sync_fetch_and_add(&state->hits, 1);
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

/* 0 to go on, else the errno of an operation that takes `grows` bytes of disk. */
static int fate(int grows) {
    long number = __sync_add_and_fetch(&state->count, 1);
    int code = 0;
    switch (state->mode) {
        case KILL: if (number == state->at) die(); break;
        case TEAR: if (number == state->at) die(); break;
        case FULL: if (grows && state->bytes <= 0) code = ENOSPC; break;
        case READ_ONLY: code = EROFS; break;
        case BROKEN: if (number == state->at) code = EIO; break;
        default: break;
    }
    if (code) __sync_fetch_and_add(&state->hits, 1);
    return code;
}

#define FAIL_IF(condition, grows)                     \
    do {                                              \
        if (awake() && (condition)) {                 \
            int code = fate(grows);                   \
            if (code) { errno = code; return -1; }    \
        }                                             \
    } while (0)

ssize_t write(int file, const void *data, size_t size) {
    REAL(write);
    if (awake() && meant_fd(file)) {
        if (state->mode == TEAR && state->count + 1 == state->at) {
            if (size > 1) real(file, data, size / 2);
            die();
        }
        if (state->mode == FULL && size) {
            long left = state->bytes;
            __sync_fetch_and_add(&state->count, 1);
            if (left < (long)size) __sync_fetch_and_add(&state->hits, 1);
            if (left <= 0) { errno = ENOSPC; return -1; }
            if (left < (long)size) size = (size_t)left;
            ssize_t written = real(file, data, size);
            if (written > 0) __sync_fetch_and_sub(&state->bytes, written);
            return written;
        }
        int code = fate(1);
        if (code) { errno = code; return -1; }
    }
    return real(file, data, size);
}

/* A function with this condition for the paths or files that are meant. */
#define OF_DISK(name, parameters, arguments, condition, grows) \
    int name parameters {                                      \
        REAL(name);                                            \
        FAIL_IF(condition, grows);                             \
        return real arguments;                                 \
    }

#define OPENING(name, folder, parameters, arguments)                                      \
    int name parameters {                                                                 \
        REAL(name);                                                                       \
        mode_t mode = 0;                                                                  \
        if (flags & (O_CREAT | __O_TMPFILE)) {                                            \
            va_list rest;                                                                 \
            va_start(rest, flags);                                                        \
            mode = va_arg(rest, mode_t);                                                  \
            va_end(rest);                                                                 \
        }                                                                                 \
        FAIL_IF((flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)) && meant_at(folder, path), \
                (flags & O_CREAT) && faccessat(folder, path, F_OK, 0));                   \
        return real arguments;                                                            \
    }

OPENING(open, AT_FDCWD, (const char *path, int flags, ...), (path, flags, mode))
OPENING(open64, AT_FDCWD, (const char *path, int flags, ...), (path, flags, mode))
OPENING(openat, folder, (int folder, const char *path, int flags, ...), (folder, path, flags, mode))
OPENING(openat64, folder, (int folder, const char *path, int flags, ...),
        (folder, path, flags, mode))
OF_DISK(rename, (const char *from, const char *to), (from, to), meant_at(AT_FDCWD, to), 0)
OF_DISK(mkdir, (const char *path, mode_t mode), (path, mode), meant_at(AT_FDCWD, path), 1)
OF_DISK(unlink, (const char *path), (path), meant_at(AT_FDCWD, path), 0)
OF_DISK(unlinkat, (int folder, const char *path, int flags), (folder, path, flags),
        meant_at(folder, path), 0)
OF_DISK(rmdir, (const char *path), (path), meant_at(AT_FDCWD, path), 0)
OF_DISK(fsync, (int file), (file), meant_fd(file), 0)
OF_DISK(ftruncate, (int file, off_t size), (file, size), meant_fd(file), 0)
OF_DISK(ftruncate64, (int file, off64_t size), (file, size), meant_fd(file), 0)
OF_DISK(chmod, (const char *path, mode_t mode), (path, mode), meant_at(AT_FDCWD, path), 0)
