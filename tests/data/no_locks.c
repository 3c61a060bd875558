/* File systems without locks: preloaded, it refuses locks of files below NO_LOCKS with the error NO_LOCKS_ERRNO. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int refused(int fd) {
    char name[64], path[4096];
    const char *below = getenv("NO_LOCKS");
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(name, path, sizeof path - 1);
    if (length < 0 || !below) return 0;
    path[length] = 0;
    if (strncmp(path, below, strlen(below))) return 0;
    errno = atoi(getenv("NO_LOCKS_ERRNO"));
    return 1;
}

int flock(int fd, int operation) {
    int (*real)(int, int) = dlsym(RTLD_NEXT, "flock");
    return refused(fd) ? -1 : real(fd, operation);
}

static int control(const char *name, int fd, int command, void *argument) {
    int locks = command == F_SETLK || command == F_SETLKW || command == F_GETLK || command == F_OFD_SETLK;
    int (*real)(int, int, ...) = dlsym(RTLD_NEXT, name);
    return locks && refused(fd) ? -1 : real(fd, command, argument);
}

#define CONTROL(name)                              \
    int name(int fd, int command, ...) {           \
        va_list rest;                              \
        va_start(rest, command);                   \
        void *argument = va_arg(rest, void *);     \
        va_end(rest);                              \
        return control(#name, fd, command, argument); \
    }
CONTROL(fcntl)
CONTROL(fcntl64)
