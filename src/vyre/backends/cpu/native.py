"""What waits for work, in native code? The threads of the pool, without Python and without its lock.

``launch(pool, job)`` lets the waiting threads help; everyone takes a few workgroups at a time until none are left, and
the caller returns when all are done. ``worker(pool)`` waits for jobs until it is told to quit. ``sequence`` runs a
table of steps again and again, until what it watches stays as it was. All is written in LLVM IR because it is called
with the addresses of kernels, and nothing else here needs a C compiler.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from vyre.backends.cpu.compile import Loaded, object_code

# A pool: a mutex and two conditions, which are smaller than this everywhere, then 64-bit words.
POOL_BYTES: Final = 512

_TEXT: Final = """
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_signal(ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @memcmp(ptr, ptr, i64)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

%pool = type { [128 x i8], [128 x i8], [128 x i8], i64, i64, i64, ptr }
%job = type { ptr, ptr, i64, i64, i64, ptr }
%step = type { %job, i64, ptr, i64 }
%range = type { ptr, i64 }
%watch = type { ptr, ptr, i64 }

define void @prepare(ptr %pool) {
  %start = getelementptr %pool, ptr %pool, i32 0, i32 1
  %done = getelementptr %pool, ptr %pool, i32 0, i32 2
  call i32 @pthread_mutex_init(ptr %pool, ptr null)
  call i32 @pthread_cond_init(ptr %start, ptr null)
  call i32 @pthread_cond_init(ptr %done, ptr null)
  ret void
}

define void @share(ptr %job) {
entry:
  %kernel.at = getelementptr %job, ptr %job, i32 0, i32 0
  %kernel = load ptr, ptr %kernel.at
  %block.at = getelementptr %job, ptr %job, i32 0, i32 1
  %block = load ptr, ptr %block.at
  %next = getelementptr %job, ptr %job, i32 0, i32 2
  %total.at = getelementptr %job, ptr %job, i32 0, i32 3
  %total = load i64, ptr %total.at
  %grain.at = getelementptr %job, ptr %job, i32 0, i32 4
  %grain = load i64, ptr %grain.at
  %stop.at = getelementptr %job, ptr %job, i32 0, i32 5
  %stop = load ptr, ptr %stop.at
  br label %take
take:
  %first = atomicrmw add ptr %next, i64 %grain seq_cst
  %some = icmp ult i64 %first, %total
  br i1 %some, label %look, label %end
look:
  %stopped = load atomic i32, ptr %stop monotonic, align 4
  %going = icmp eq i32 %stopped, 0
  br i1 %going, label %run, label %end
run:
  %after = add i64 %first, %grain
  %short = icmp ult i64 %after, %total
  %last = select i1 %short, i64 %after, i64 %total
  call void %kernel(ptr %block, i64 %first, i64 %last)
  br label %take
end:
  ret void
}

define void @launch(ptr %pool, ptr %job) {
entry:
  %start = getelementptr %pool, ptr %pool, i32 0, i32 1
  %done = getelementptr %pool, ptr %pool, i32 0, i32 2
  %generation = getelementptr %pool, ptr %pool, i32 0, i32 3
  %running = getelementptr %pool, ptr %pool, i32 0, i32 5
  %current = getelementptr %pool, ptr %pool, i32 0, i32 6
  call i32 @pthread_mutex_lock(ptr %pool)
  store ptr %job, ptr %current
  %old = load i64, ptr %generation
  %new = add i64 %old, 1
  store i64 %new, ptr %generation
  call i32 @pthread_cond_broadcast(ptr %start)
  call i32 @pthread_mutex_unlock(ptr %pool)
  call void @share(ptr %job)
  call i32 @pthread_mutex_lock(ptr %pool)
  store ptr null, ptr %current
  br label %look
look:
  %busy = load i64, ptr %running
  %idle = icmp eq i64 %busy, 0
  br i1 %idle, label %end, label %wait
wait:
  call i32 @pthread_cond_wait(ptr %done, ptr %pool)
  br label %look
end:
  call i32 @pthread_mutex_unlock(ptr %pool)
  ret void
}

; Runs the steps up to %times times; after each pass the watched memory is compared with its shadow, and if %keep, the
; shadow follows it. Without a pool, nobody helps. The number of passes; its sign bit: the last one changed nothing.
define i64 @sequence(ptr %pool, ptr %steps, i64 %count, i64 %times, ptr %watches, i64 %watched, i1 %keep) {
entry:
  %alone = icmp eq ptr %pool, null
  %watching = icmp ne i64 %watched, 0
  br label %pass
pass:
  %passes = phi i64 [ 0, %entry ], [ %done, %again ]
  %some = icmp ult i64 %passes, %times
  br i1 %some, label %step, label %end
step:
  %at = phi i64 [ 0, %pass ], [ %next.at, %after ]
  %more = icmp ult i64 %at, %count
  br i1 %more, label %begin, label %passed
begin:
  %here = getelementptr %step, ptr %steps, i64 %at
  %clears.at = getelementptr %step, ptr %here, i32 0, i32 2
  %clears = load ptr, ptr %clears.at
  %cleared.at = getelementptr %step, ptr %here, i32 0, i32 3
  %cleared = load i64, ptr %cleared.at
  br label %clear
clear:
  %number = phi i64 [ 0, %begin ], [ %next.number, %zero ]
  %left = icmp ult i64 %number, %cleared
  br i1 %left, label %zero, label %ready
zero:
  %range = getelementptr %range, ptr %clears, i64 %number
  %start = load ptr, ptr %range
  %size.at = getelementptr %range, ptr %range, i32 0, i32 1
  %size = load i64, ptr %size.at
  call void @llvm.memset.p0.i64(ptr %start, i8 0, i64 %size, i1 false)
  %next.number = add i64 %number, 1
  br label %clear
ready:
  %taken = getelementptr %job, ptr %here, i32 0, i32 2
  store i64 0, ptr %taken
  %shared.at = getelementptr %step, ptr %here, i32 0, i32 1
  %shared.word = load i64, ptr %shared.at
  %shared = icmp ne i64 %shared.word, 0
  %helped = select i1 %alone, i1 false, i1 %shared
  br i1 %helped, label %together, label %single
together:
  call void @launch(ptr %pool, ptr %here)
  br label %after
single:
  call void @share(ptr %here)
  br label %after
after:
  %stop.at = getelementptr %job, ptr %here, i32 0, i32 5
  %stop = load ptr, ptr %stop.at
  %stopped = load atomic i32, ptr %stop monotonic, align 4
  %next.at = add i64 %at, 1
  %going = icmp eq i32 %stopped, 0
  br i1 %going, label %step, label %end
passed:
  %done = add i64 %passes, 1
  br i1 %watching, label %compare, label %again
compare:
  %watch = phi i64 [ 0, %passed ], [ %next.watch, %same ]
  %changed = phi i1 [ false, %passed ], [ %either, %same ]
  %unseen = icmp ult i64 %watch, %watched
  br i1 %unseen, label %look, label %judge
look:
  %pair = getelementptr %watch, ptr %watches, i64 %watch
  %memory = load ptr, ptr %pair
  %shadow.at = getelementptr %watch, ptr %pair, i32 0, i32 1
  %shadow = load ptr, ptr %shadow.at
  %length.at = getelementptr %watch, ptr %pair, i32 0, i32 2
  %length = load i64, ptr %length.at
  %order = call i32 @memcmp(ptr %memory, ptr %shadow, i64 %length)
  %differs = icmp ne i32 %order, 0
  %follow = select i1 %keep, i1 %differs, i1 false
  br i1 %follow, label %copy, label %same
copy:
  call void @llvm.memcpy.p0.p0.i64(ptr %shadow, ptr %memory, i64 %length, i1 false)
  br label %same
same:
  %either = or i1 %changed, %differs
  %next.watch = add i64 %watch, 1
  br label %compare
judge:
  br i1 %changed, label %again, label %settled
again:
  br label %pass
settled:
  %marked = or i64 %done, -9223372036854775808
  ret i64 %marked
end:
  ret i64 %passes
}

define void @quit(ptr %pool) {
  %start = getelementptr %pool, ptr %pool, i32 0, i32 1
  %leave = getelementptr %pool, ptr %pool, i32 0, i32 4
  call i32 @pthread_mutex_lock(ptr %pool)
  store i64 1, ptr %leave
  call i32 @pthread_cond_broadcast(ptr %start)
  call i32 @pthread_mutex_unlock(ptr %pool)
  ret void
}

define void @worker(ptr %pool) {
entry:
  %start = getelementptr %pool, ptr %pool, i32 0, i32 1
  %done = getelementptr %pool, ptr %pool, i32 0, i32 2
  %generation = getelementptr %pool, ptr %pool, i32 0, i32 3
  %leave = getelementptr %pool, ptr %pool, i32 0, i32 4
  %running = getelementptr %pool, ptr %pool, i32 0, i32 5
  %current = getelementptr %pool, ptr %pool, i32 0, i32 6
  call i32 @pthread_mutex_lock(ptr %pool)
  br label %look
look:
  %seen = phi i64 [ 0, %entry ], [ %seen, %wait ], [ %now, %new ], [ %now, %finished ]
  %leaving = load i64, ptr %leave
  %stay = icmp eq i64 %leaving, 0
  br i1 %stay, label %compare, label %end
compare:
  %now = load i64, ptr %generation
  %old = icmp eq i64 %now, %seen
  br i1 %old, label %wait, label %new
wait:
  call i32 @pthread_cond_wait(ptr %start, ptr %pool)
  br label %look
new:
  %job = load ptr, ptr %current
  %over = icmp eq ptr %job, null
  br i1 %over, label %look, label %help
help:
  %before = load i64, ptr %running
  %more = add i64 %before, 1
  store i64 %more, ptr %running
  call i32 @pthread_mutex_unlock(ptr %pool)
  call void @share(ptr %job)
  call i32 @pthread_mutex_lock(ptr %pool)
  %busy = load i64, ptr %running
  %fewer = sub i64 %busy, 1
  store i64 %fewer, ptr %running
  %last = icmp eq i64 %fewer, 0
  br i1 %last, label %tell, label %finished
tell:
  call i32 @pthread_cond_signal(ptr %done)
  br label %finished
finished:
  br label %look
end:
  call i32 @pthread_mutex_unlock(ptr %pool)
  ret void
}
"""


@cache
def native() -> Loaded:
    """The functions ``prepare``, ``worker``, ``launch``, ``sequence`` and ``quit``."""
    return Loaded(object_code(_TEXT))
