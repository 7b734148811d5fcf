/* Makes chosen calls on the files of one folder fail: for LD_PRELOAD, controlled by ctypes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static char folder[PATH_MAX];
static int first, last, number, calls, torn;

/* Fail the calls from `begin` to `end`, counted from 1, with `code`; write half of a torn one. */
void io_faults_arm(const char *path, int begin, int end, int code, int half)
{
    strncpy(folder, path, sizeof folder - 1);
    first = begin;
    last = end;
    number = code;
    torn = half;
    calls = 0;
}

int io_faults_calls(void) { return calls; }

static int fails(int fd)
{
    char link[64], path[PATH_MAX];
    ssize_t size;
    int now, saved = errno;

    if (!folder[0])
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    size = readlink(link, path, sizeof path - 1);
    errno = saved;
    if (size < 0)
        return 0;
    path[size] = 0;
    if (strncmp(path, folder, strlen(folder)))
        return 0;
    now = __sync_add_and_fetch(&calls, 1);
    return first <= now && now <= last;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define WRITE(name, parameters, whole, part)            \
    ssize_t name parameters                             \
    {                                                   \
        if (fails(fd)) {                                \
            if (torn && count > 1 && number != ENOSPC)  \
                (void)!REAL(name) part;                 \
            errno = number;                             \
            return -1;                                  \
        }                                               \
        return REAL(name) whole;                        \
    }
#define CALL(name, parameters, given)                   \
    int name parameters                                 \
    {                                                   \
        if (fails(fd)) {                                \
            errno = number;                             \
            return -1;                                  \
        }                                               \
        return REAL(name) given;                        \
    }

WRITE(write, (int fd, const void *data, size_t count), (fd, data, count), (fd, data, count / 2))
WRITE(pwrite, (int fd, const void *data, size_t count, off_t at), (fd, data, count, at),
      (fd, data, count / 2, at))
WRITE(pwrite64, (int fd, const void *data, size_t count, off64_t at), (fd, data, count, at),
      (fd, data, count / 2, at))
CALL(fsync, (int fd), (fd))
CALL(fdatasync, (int fd), (fd))
CALL(ftruncate, (int fd, off_t size), (fd, size))
CALL(ftruncate64, (int fd, off64_t size), (fd, size))
