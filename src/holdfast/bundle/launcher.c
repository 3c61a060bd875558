/* What a container starts: an executable without a C library of its own needs, whatever the image holds.
 *
 * One program under three names. It finds its tree from where it lies, and becomes the tree's own dynamic loader, which
 * maps the tree's own Python:
 *
 *   DIR/run            the task's start command             python3 -m holdfast.bundle.entry run ...
 *   TREE/bin/holdfast  the command line                     python3 -m holdfast.bundle.entry holdfast ...
 *   TREE/bin/python3   what Python calls sys.executable     python3 ...
 *
 * DIR is a tree itself, or the directory in which `holdfast prepare` has laid one down (DIR/holdfast/now leads there).
 *
 * Variables that steer a dynamic loader, a C library or the locale were made for the image's. Ours must not read them:
 * each gets a prefix here and its name back in holdfast/bundle/hidden_variables.py.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#if defined(__x86_64__)
#define LOADER "/lib/ld-linux-x86-64.so.2"
#elif defined(__aarch64__)
#define LOADER "/lib/ld-linux-aarch64.so.1"
#else
#error "the tree is built for x86-64 and aarch64 only"
#endif

#define HIDDEN "__HOLDFAST_HIDDEN_" /* also in hidden_variables.py */
#define OURS 16                     /* words before the caller's, at most */

extern char **environ;

static const char *const FAMILIES[] = {"LD_", "LC_", "MALLOC_"};
static const char *const NAMES[] = {"LANG", "LANGUAGE", "LOCPATH", "GCONV_PATH", "GLIBC_TUNABLES"};

static void fail(const char *what, const char *why) {
  dprintf(2, "holdfast: the runtime cannot start: %s: %s\n", what, why);
  _exit(127);
}

/* Into `to`, which has PATH_MAX bytes: the two parts, one behind the other. */
static void join(char *to, const char *front, const char *back) {
  size_t front_bytes = strlen(front), back_bytes = strlen(back);
  if (front_bytes + back_bytes >= PATH_MAX) fail(front, "its path is too long: lay the runtime down nearer to /");
  memcpy(to, front, front_bytes);
  memcpy(to + front_bytes, back, back_bytes + 1);
}

static int is_tree(const char *place) {
  char loader[PATH_MAX];
  join(loader, place, LOADER);
  return access(loader, X_OK) == 0;
}

static int is_hidden(const char *entry) {
  const char *end = strchr(entry, '=');
  if (!end) return 0;
  size_t length = (size_t)(end - entry);
  for (size_t i = 0; i < sizeof FAMILIES / sizeof *FAMILIES; i++)
    if (!strncmp(entry, FAMILIES[i], strlen(FAMILIES[i]))) return 1;
  for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
    if (length == strlen(NAMES[i]) && !memcmp(entry, NAMES[i], length)) return 1;
  return 0;
}

/* Where this executable lies, no link left in the path. Without /proc the kernel has told it by another way. */
static void find_self(char *self) {
  ssize_t length = readlink("/proc/self/exe", self, PATH_MAX);
  if (length >= PATH_MAX) fail("/proc/self/exe", "its path is too long: lay the runtime down nearer to /");
  if (length > 0) {
    self[length] = 0;
    return;
  }
  const char *given = (const char *)getauxval(AT_EXECFN);
  if (!given || !realpath(given, self)) fail(given ? given : "itself", strerror(errno));
}

/* Takes the last part off a path, and says what it was. */
static const char *cut(char *path) {
  char *slash = strrchr(path, '/');
  if (!slash) fail(path, "expected an absolute path");
  *slash = 0;
  return slash + 1;
}

int main(int argc, char **argv) {
  static char self[PATH_MAX], tree[PATH_MAX], laid[PATH_MAX], loader[PATH_MAX], libraries[PATH_MAX], program[PATH_MAX],
      python[PATH_MAX];
  find_self(self);
  const char *name = cut(self); /* `self` is the directory from here on */
  int is_run = !strcmp(name, "run"), is_holdfast = !strcmp(name, "holdfast");

  if (!is_run) {
    cut(self);
    join(tree, self, "");
  } else if (is_tree(self)) {
    join(tree, self, "");
  } else {
    join(laid, self, "/holdfast/now");
    /* No link may be left: `now` leads to another tree as soon as another version is laid down. */
    if (!realpath(laid, tree)) fail(laid, strerror(errno));
  }
  if (!is_tree(tree)) fail(tree, "there is no runtime for this machine's processor: holdfast prepare lays one down");
  join(loader, tree, LOADER);
  join(libraries, tree, "/lib");
  join(program, tree, "/libexec/python3");
  join(python, tree, "/bin/python3");

  size_t variables = 0;
  while (environ[variables]) variables++;
  char **environment = calloc(variables + 2, sizeof *environment);
  size_t words = argc > 0 ? (size_t)argc : 0;
  char **command = calloc(words + OURS, sizeof *command);
  if (!environment || !command) fail("its command", strerror(errno));

  size_t kept = 0;
  for (size_t i = 0; i < variables; i++) {
    char *entry = environ[i];
    if (is_hidden(entry)) {
      size_t bytes = strlen(entry) + 1;
      char *renamed = malloc(sizeof HIDDEN - 1 + bytes);
      if (!renamed) fail("its environment", strerror(errno));
      memcpy(renamed, HIDDEN, sizeof HIDDEN - 1);
      memcpy(renamed + sizeof HIDDEN - 1, entry, bytes);
      entry = renamed;
    }
    environment[kept++] = entry;
  }
  /* With a locale of the C library's own Python writes none into the environment (PEP 538). */
  environment[kept++] = "LC_ALL=C.UTF-8";

  size_t next = 0;
  command[next++] = loader;
  command[next++] = "--library-path";
  command[next++] = libraries;
  command[next++] = "--argv0";
  command[next++] = python;
  command[next++] = program;
  command[next++] = "-I";
  command[next++] = "-B";
  command[next++] = "-X";
  command[next++] = "utf8=1";
  if (is_run || is_holdfast) {
    command[next++] = "-S";
    command[next++] = "-m";
    command[next++] = "holdfast.bundle.entry";
    command[next++] = is_run ? "run" : "holdfast";
  }
  for (size_t i = 1; i < words; i++) command[next++] = argv[i];

  execve(loader, command, environment);
  fail(loader, strerror(errno));
}
