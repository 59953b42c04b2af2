/* Writes a native backtrace when the process is about to die of a signal, then lets it die.
 * Before it, where memory was accessed that could not be, stands the address, and which function
 * was being called with which arrays (the record that call_record.py keeps). Another signal has the
 * native stack written while the process continues. Only async-signal-safe calls are made in the
 * handlers; libgcc, which backtrace() loads on first use, is loaded at installation. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>
#if __has_include(<execinfo.h>)
#include <execinfo.h>
#else /* musl: no backtrace, the rest works */
#define backtrace(frames, count) ((void)(frames), 0)
#define backtrace_symbols_fd(frames, count, fd) ((void)(frames), (void)(count))
#endif

enum { MAX_FRAMES = 64, STACK_BYTES = 64 * 1024, MAX_SIGNALS = 65 };

static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
enum { SIGNALS = sizeof signals / sizeof signals[0] };

static int output = -1;
static struct sigaction previous[SIGNALS];
static char stack[STACK_BYTES] __attribute__((aligned(16)));

/* Where the signal struck, so that the handler's own frames are left out; 0 if unknown. */
static uintptr_t interrupted(const void *context) {
#if defined(__x86_64__)
  return (uintptr_t)((const ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
  return (uintptr_t)((const ucontext_t *)context)->uc_mcontext.pc;
#else
  return (void)context, 0;
#endif
}

/* What call_record.py writes before a call: names, how many arrays, address and size of each. */
struct record {
  const char *names;
  uint64_t count;
  struct {
    uint64_t address, bytes;
  } arrays[];
};
static const struct record *record;

static void put(const char *text, size_t length) {
  while (length > 0) {
    ssize_t written = write(output, text, length);
    if (written <= 0) return;
    text += written, length -= (size_t)written;
  }
}

static void put_number(uint64_t number) {
  char text[24], *at = text + sizeof text;
  do *--at = (char)('0' + number % 10);
  while (number /= 10);
  *--at = ' ';
  put(at, (size_t)(text + sizeof text - at));
}

/* Whether the access was a write; where that is not known, it is called an access. */
static const char *kind(const void *context) {
#if defined(__x86_64__)
  return ((const ucontext_t *)context)->uc_mcontext.gregs[REG_ERR] & 2 ? "write" : "read";
#else
  return (void)context, "access";
#endif
}

/* One line: memory KIND ADDRESS COUNT (ADDRESS BYTES)... NAMES; the host makes a sentence of it. */
static void put_access(const siginfo_t *info, const void *context) {
  put("memory ", 7);
  put(kind(context), strlen(kind(context)));
  put_number((uint64_t)(uintptr_t)info->si_addr);
  put_number(record->count);
  for (uint64_t i = 0; i < record->count; i++) {
    put_number(record->arrays[i].address);
    put_number(record->arrays[i].bytes);
  }
  put(" ", 1);
  put(record->names, strlen(record->names));
  put("\n", 1);
}

static void put_frames(const void *context) {
  void *frames[MAX_FRAMES];
  int count = backtrace(frames, MAX_FRAMES), first = 0;
  for (int i = 0; i < count; i++)
    if ((uintptr_t)frames[i] == interrupted(context)) first = i;
  backtrace_symbols_fd(frames + first, count - first, output);
}

static void on_crash(int number, siginfo_t *info, void *context) {
  if ((number == SIGSEGV || number == SIGBUS) && info->si_code > 0 && record && record->names)
    put_access(info, context);
  put_frames(context);
  for (int i = 0; i < SIGNALS; i++)
    if (signals[i] == number) sigaction(number, &previous[i], NULL);
  raise(number); /* pending until this returns; then the previous handler, or the end */
}

static struct sigaction python_stacks[MAX_SIGNALS]; /* by signal: write the Python frames */

static void on_stack_wanted(int number, siginfo_t *info, void *context) {
  int error = errno;
  const struct sigaction *python = &python_stacks[number];
  put_frames(context);
  if (python->sa_flags & SA_SIGINFO)
    python->sa_sigaction(number, info, context);
  else if (python->sa_handler != SIG_DFL && python->sa_handler != SIG_IGN)
    python->sa_handler(number);
  errno = error;
}

/* From now on the record of calls is read, too. */
void sapwood_watch_calls(const void *calls) { record = calls; }

/* Returns 0, or -1 when a handler could not be installed. */
int sapwood_install_crash_handler(int fd) {
  const stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
  struct sigaction action = {.sa_sigaction = on_crash, .sa_flags = SA_SIGINFO | SA_ONSTACK};
  void *warm_up[1];
  output = fd;
  backtrace(warm_up, 1);
  sigemptyset(&action.sa_mask);
  if (sigaltstack(&alternate, NULL)) return -1;
  for (int i = 0; i < SIGNALS; i++)
    if (sigaction(signals[i], &action, &previous[i])) return -1;
  return 0;
}

/* Has native frames written before the Python frames that the handler of this signal writes.
 * Returns 0, or -1 when the handler could not be installed. */
int sapwood_install_stack_handler(int number) {
  struct sigaction action = {.sa_sigaction = on_stack_wanted,
                             .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
  sigemptyset(&action.sa_mask);
  if (number < 1 || number >= MAX_SIGNALS) return -1;
  return sigaction(number, &action, &python_stacks[number]);
}
