/* Another time of day for one node of a drill: preloaded, it adds DAY_OFF_S seconds to the clock of the wall alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static long off(void) { const char *text = getenv("DAY_OFF_S"); return text ? atol(text) : 0; }

int clock_gettime(clockid_t clock, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int status = real(clock, at);
    if (!status && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) at->tv_sec += off();
    return status;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    static int (*real)(struct timeval *, void *);
    if (!real) real = dlsym(RTLD_NEXT, "gettimeofday");
    int status = real(at, zone);
    if (!status) at->tv_sec += off();
    return status;
}

time_t time(time_t *to) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    if (to) *to = at.tv_sec;
    return at.tv_sec;
}
