/* Native runtime of the cpu backend: a thread pool, one launch on arrays, and a walk over a table of launches.
 *
 * `enter` runs one launch. `walk` runs the nodes of a table one after another, each selected by the one before, a
 * number of times or until watched memory stays unchanged. Nodes worth it are shared: `share_job` publishes a job,
 * every thread takes a few workgroups at a time, first from its own part, which is the same in every launch, then from
 * the parts of threads that fall behind. The caller continues when all workgroups are done.
 *
 * Idle workers spin for a few tens of microseconds, yielding the core now and then, and only then sleep on a condition
 * variable: a grid barrier costs about one microsecond. A worker announces itself as sleeping and re-checks the job
 * generation before it blocks; the caller publishes a job before it checks for sleepers. Either order wakes the worker,
 * so wake-ups are never lost. A worker counts itself as working before it reads the job, and the caller withdraws the
 * job before it reads that count, so a job is never touched after its launch returned. Both pairs are a store before a
 * load of another word, which only sequentially consistent operations keep in order.
 *
 * Every signature is 64-bit integers and pointers, which x86-64 and AArch64 pass alike on Linux and macOS. Objects of
 * the C library whose size differs between platforms are opaque.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "layout.h"

#define SIGINT 2
/* How often a spinning thread polls before it yields the processor. */
#define POLLS_PER_YIELD 64
/* How often a thread that has finished its own part polls a part that does not advance before it helps there: some
 * microseconds; and a part whose thread has not begun, because it sleeps or has no processor. */
#define POLLS_BEFORE_HELPING 256
#define POLLS_BEFORE_BEGINNING 8

/* Declared here, as headers fix the sizes of one platform. */
int pthread_mutex_init(void *mutex, const void *attributes);
int pthread_mutex_lock(void *mutex);
int pthread_mutex_unlock(void *mutex);
int pthread_cond_init(void *condition, const void *attributes);
int pthread_cond_wait(void *condition, void *mutex);
int pthread_cond_signal(void *condition);
int pthread_cond_broadcast(void *condition);
int sched_yield(void);
int sigaction(int number, const void *action, void *previous);
int memcmp(const void *left, const void *right, size_t bytes);
void *memcpy(void *restrict target, const void *restrict source, size_t bytes);
void *memset(void *target, int value, size_t bytes);

/* Defined per machine and Python when the runtime is loaded (vyre.backends.cpu.native): a spinning processor's hint,
 * the fence that orders stores past the caches before what follows, and where a NumPy array keeps its data pointer. */
void machine_pause(void);
void machine_fence(void);
extern const uint64_t array_data_offset;

static struct interrupts interrupts;

static uint64_t least(uint64_t left, uint64_t right) { return left < right ? left : right; }

void prepare(struct pool *pool) {
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->start, NULL);
    pthread_cond_init(&pool->finish, NULL);
}

/* Poll a word until it equals (or differs from) a value; false at the spin limit. */
static bool spin(_Atomic(uint64_t) *word, uint64_t value, bool equal, const struct pool *pool) {
    for (uint64_t polls = 0; (atomic_load(word) == value) != equal;) {
        if (polls >= pool->spins) {
            return false;
        }
        if (++polls % POLLS_PER_YIELD == 0) {
            sched_yield();
        } else {
            machine_pause();
        }
    }
    return true;
}

static bool is_stopped(const stop_word *stop) {
    return atomic_load_explicit(&stop->reason, memory_order_relaxed) != 0;
}

/* Run a job on the calling thread, a grain at a time, until it is stopped. */
static void run_alone(const struct job *job) {
    for (uint64_t first = 0; first < job->total && !is_stopped(job->stop); first += job->grain) {
        job->kernel(job->block, first, least(first + job->grain, job->total));
    }
    machine_fence();
}

/* Poll another thread's part while it advances; whether it has items left and its thread seems to need help. */
static bool needs_help(_Atomic(uint64_t) *taken, uint64_t length) {
    uint64_t before = 0;
    for (uint64_t polls = 0;;) {
        uint64_t now = atomic_load_explicit(taken, memory_order_relaxed);
        if (now >= length) {
            return false;
        }
        if (polls >= (now == 0 ? POLLS_BEFORE_BEGINNING : POLLS_BEFORE_HELPING)) {
            return true;
        }
        machine_pause();
        polls = now == before ? polls + 1 : 0;
        before = now;
    }
}

/* Take grains of the thread's own part, then those left in the parts of others. Memory that a thread has worked on is
 * in its caches for the next launch: a thread that advances keeps its part. */
static void take_grains(struct pool *pool, const struct job *job, uint64_t self) {
    struct part *parts = (struct part *)(pool + 1);
    uint64_t threads = pool->threads, total = job->total, grain = job->grain;
    uint64_t grains = (total + grain - 1) / grain;
    uint64_t size = (grains + threads - 1) / threads * grain;
    for (uint64_t tried = 0; tried < threads; tried++) {
        uint64_t number = self + tried < threads ? self + tried : self + tried - threads;
        uint64_t start = least(number * size, total);
        uint64_t length = least(size, total - start);
        _Atomic(uint64_t) *taken = &parts[number].taken;
        if (tried != 0 && !needs_help(taken, length)) {
            continue;
        }
        while (atomic_load_explicit(taken, memory_order_relaxed) < length) {
            uint64_t offset = atomic_fetch_add_explicit(taken, grain, memory_order_relaxed);
            if (offset >= length) {
                break;
            }
            if (is_stopped(job->stop)) {
                goto end;
            }
            uint64_t first = start + offset;
            job->kernel(job->block, first, least(first + grain, total));
        }
    }
end:
    machine_fence();
}

/* Run a job on all threads of the pool; the caller is thread 0. */
static void share_job(struct pool *pool, const struct job *job) {
    struct part *parts = (struct part *)(pool + 1);
    for (uint64_t number = 0; number < pool->threads; number++) {
        atomic_store_explicit(&parts[number].taken, 0, memory_order_relaxed);
    }
    atomic_store(&pool->job, job);
    atomic_fetch_add(&pool->generation, 1);
    if (atomic_load(&pool->sleeping) != 0) {
        pthread_mutex_lock(&pool->mutex);
        pthread_cond_broadcast(&pool->start);
        pthread_mutex_unlock(&pool->mutex);
    }
    take_grains(pool, job, 0);
    atomic_store(&pool->job, NULL);
    if (!spin(&pool->working, 0, true, pool)) {
        pthread_mutex_lock(&pool->mutex);
        atomic_store(&pool->caller_sleeps, 1);
        while (atomic_load(&pool->working) != 0) {
            pthread_cond_wait(&pool->finish, &pool->mutex);
        }
        atomic_store(&pool->caller_sleeps, 0);
        pthread_mutex_unlock(&pool->mutex);
    }
}

/* Wait for jobs and help with them until the pool closes. */
void worker(struct pool *pool, uint64_t self) {
    for (uint64_t seen = 0;;) {
        if (!spin(&pool->generation, seen, false, pool)) {
            pthread_mutex_lock(&pool->mutex);
            atomic_fetch_add(&pool->sleeping, 1);
            while (atomic_load(&pool->generation) == seen) {
                pthread_cond_wait(&pool->start, &pool->mutex);
            }
            atomic_fetch_sub(&pool->sleeping, 1);
            pthread_mutex_unlock(&pool->mutex);
        }
        seen = atomic_load(&pool->generation);
        if (atomic_load(&pool->closing) != 0) {
            return;
        }
        atomic_fetch_add(&pool->working, 1);
        const struct job *job = atomic_load(&pool->job);
        if (job != NULL) {
            take_grains(pool, job, self);
        }
        if (atomic_fetch_sub(&pool->working, 1) == 1 && atomic_load(&pool->caller_sleeps) != 0) {
            pthread_mutex_lock(&pool->mutex);
            pthread_cond_signal(&pool->finish);
            pthread_mutex_unlock(&pool->mutex);
        }
    }
}

/* Let the workers return. A launch under way loses their help and runs to its end. */
void quit(struct pool *pool) {
    atomic_store(&pool->closing, 1);
    atomic_fetch_add(&pool->generation, 1);
    pthread_mutex_lock(&pool->mutex);
    pthread_cond_broadcast(&pool->start);
    pthread_mutex_unlock(&pool->mutex);
}

/* The pool, if there is one and no other caller has it. */
static struct pool *claim(struct pool *pool) {
    uint64_t is_free = 0;
    return pool != NULL && atomic_compare_exchange_strong(&pool->busy, &is_free, 1) ? pool : NULL;
}

static void release(struct pool *pool) {
    if (pool != NULL) {
        atomic_store(&pool->busy, 0);
    }
}

/* Note a SIGINT for Python, then stop the launch that the main thread runs. Python's handler comes first: when the main
 * thread sees its launch interrupted, KeyboardInterrupt is pending. Any thread may be the one that is signalled. */
static void on_interrupt(uint64_t number, void *info, void *context) {
    atomic_fetch_add(&interrupts.handlers, 1);
    atomic_load(&interrupts.previous)(number, info, context);
    atomic_store(&interrupts.arrived, 1);
    stop_word *stop = atomic_load(&interrupts.stop);
    if (stop != NULL) {
        atomic_store(&stop->reason, INTERRUPTED);
    }
    atomic_fetch_sub(&interrupts.handlers, 1);
}

/* Place on_interrupt before the handler of SIGINT, unless it is there or the signal has no handler; whether that
 * changed it. Python installs its own again whenever `signal.signal` is called. The handler is the first word of every
 * platform's `struct sigaction`; the mask and the flags stay those of the previous handler. */
static bool install_handler(void) {
    union {
        signal_handler *handler;
        uint64_t words[64];
    } action;
    enum { DEFAULT, IGNORED };
    if (sigaction(SIGINT, NULL, &action) != 0 || action.handler == on_interrupt ||
        (uintptr_t)action.handler <= IGNORED) {
        return false;
    }
    atomic_store(&interrupts.previous, action.handler);
    action.handler = on_interrupt;
    return sigaction(SIGINT, &action, NULL) == 0;
}

/* Let SIGINT store INTERRUPTED to a stop word, also one that came since Python cleared `arrived`. False if the handler
 * was not there to note that one: then Python has to look for it. */
static bool admit_interrupts(stop_word *stop) {
    if (install_handler()) {
        return false;
    }
    atomic_store(&interrupts.stop, stop);
    if (atomic_load(&interrupts.arrived) != 0) {
        atomic_store(&stop->reason, INTERRUPTED);
    }
    return true;
}

/* End that. The stop word may be gone afterwards, so wait for handlers that run on other threads. */
static void refuse_interrupts(void) {
    atomic_store(&interrupts.stop, NULL);
    while (atomic_load(&interrupts.handlers) != 0) {
        sched_yield();
    }
}

struct interrupts *interrupt_state(void) { return &interrupts; }

static int64_t run_frame(struct pool *pool, const struct frame *frame, const char *const *arrays, stop_word *timed,
                         bool interruptible) {
    stop_word own = {0};
    stop_word *stop = timed != NULL ? timed : &own;
    uint64_t block[frame->block_words];
    memcpy(block, frame + 1, sizeof block);
    ((struct block *)block)->stop = stop;
    struct slot *slots = (struct slot *)((struct block *)block + 1);
    for (uint64_t number = 0; number < frame->buffers; number++) {
        uint64_t address = *(const uint64_t *)(arrays[number] + array_data_offset);
        if ((address & slots[number].address) != 0) {
            return MISALIGNED;
        }
        slots[number].address = address;
    }
    if (interruptible && !admit_interrupts(stop)) {
        return NOT_ENTERED;
    }
    if (frame->grain == 0) {
        frame->kernel(block, 0, frame->total);
        machine_fence();
    } else {
        struct job job = {frame->kernel, block, frame->total, frame->grain, stop};
        struct pool *claimed = claim(pool);
        if (claimed != NULL) {
            share_job(claimed, &job);
        } else {
            run_alone(&job);
        }
        release(claimed);
    }
    if (interruptible) {
        refuse_interrupts();
    }
    return atomic_load_explicit(&stop->reason, memory_order_relaxed);
}

/* Run a launch on arrays, which are Python objects in the order of the frame's buffers: on the threads of the pool if
 * the frame has a grain and the pool is free. Returns a reason: what the stop word says in the end, or MISALIGNED. */
int64_t enter(struct pool *pool, const struct frame *frame, const char *const *arrays, stop_word *timed) {
    return run_frame(pool, frame, arrays, timed, false);
}

/* The same on Python's main thread, so that SIGINT ends it; NOT_ENTERED if Python has to check for signals first. */
int64_t enter_interruptibly(struct pool *pool, const struct frame *frame, const char *const *arrays, stop_word *timed) {
    return run_frame(pool, frame, arrays, timed, true);
}

static void apply_edits(const struct edit *edits, uint64_t count) {
    for (const struct edit *edit = edits; edit < edits + count; edit++) {
        if (edit->source == NULL) {
            memset(edit->target, 0, edit->bytes);
        } else {
            memcpy(edit->target, edit->source, edit->bytes);
        }
    }
}

/* Whether watched memory equals its shadow; a shadow that follows is updated. */
static bool is_unchanged(const struct watch *watches, uint64_t count, bool follows) {
    bool same = true;
    for (const struct watch *watch = watches; watch < watches + count; watch++) {
        if (memcmp(watch->memory, watch->shadow, watch->bytes) != 0) {
            same = false;
            if (follows) {
                memcpy(watch->shadow, watch->memory, watch->bytes);
            }
        }
    }
    return same;
}

/* Not inlined into both of its callers: every process compiles this code once. */
__attribute__((noinline)) static int64_t run_nodes(struct pool *pool, struct run *run) {
    while (run->passes < run->times) {
        while (run->at < run->count) {
            const struct node *node = run->nodes + run->at;
            apply_edits(node->edits, node->edit_count);
            if (node->control != NULL) {
                node->control[0] = node->control[1] = 0;
            }
            if (pool != NULL && node->shared != 0) {
                share_job(pool, &node->job);
            } else {
                run_alone(&node->job);
            }
            if (is_stopped(node->job.stop)) {
                return STOPPED;
            }
            if (node->control == NULL) {
                run->at = node->following;
                continue;
            }
            run->decisions++;
            if (node->control[1] != 0 || run->asks != 0) {
                return ASKED;
            }
            run->at = node->exits[node->control[0]];
        }
        run->passes++;
        run->at = 0;
        if (run->watches != NULL && is_unchanged(run->watches, run->watch_count, run->follows != 0)) {
            return UNCHANGED;
        }
    }
    return DONE;
}

/* Run nodes from where the run is, with the pool if it is free. Returns an ending; the run says how far it came. */
int64_t walk(struct pool *pool, struct run *run) {
    struct pool *claimed = claim(pool);
    int64_t ending = run_nodes(claimed, run);
    release(claimed);
    return ending;
}

/* The same on Python's main thread, so that SIGINT ends it; NOT_BEGUN if Python has to check for signals first. */
int64_t walk_interruptibly(struct pool *pool, struct run *run) {
    if (!admit_interrupts(&run->stop)) {
        return NOT_BEGUN;
    }
    int64_t ending = walk(pool, run);
    refuse_interrupts();
    return ending;
}
