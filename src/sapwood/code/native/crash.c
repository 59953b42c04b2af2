/* Writes a native backtrace when the process is about to die of a signal, then lets it die.
 * Only async-signal-safe calls are made in the handler; libgcc, which backtrace() loads on
 * first use, is loaded at installation. */
#define _GNU_SOURCE
#include <execinfo.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <ucontext.h>

enum { MAX_FRAMES = 64, STACK_BYTES = 64 * 1024 };

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

static void on_crash(int number, siginfo_t *info, void *context) {
  void *frames[MAX_FRAMES];
  int count = backtrace(frames, MAX_FRAMES), first = 0;
  (void)info;
  for (int i = 0; i < count; i++)
    if ((uintptr_t)frames[i] == interrupted(context)) first = i;
  backtrace_symbols_fd(frames + first, count - first, output);
  for (int i = 0; i < SIGNALS; i++)
    if (signals[i] == number) sigaction(number, &previous[i], NULL);
  raise(number); /* pending until this returns; then the previous handler, or the end */
}

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
