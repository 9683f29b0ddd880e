/* The C ABI of libheadroom_torch.so: the allocator that lives inside PyTorch.
 *
 * Everything here may be called from any thread at any time; nothing throws (but see
 * headroom_on_out_of_memory), nothing prints, nothing exits. The library needs no other library:
 * the CUDA driver is found by dlopen at the first allocation, never before, so that loading and
 * configuring it makes no CUDA context. All state is leaked on purpose: PyTorch frees tensors while
 * the process ends. After fork() the child gets null from every allocation (a forked child has no
 * CUDA either); spawn is not affected.
 *
 * Every structure begins with its own size, so that a newer library serves an older caller.
 * Strings are UTF-8; those that come back live for ever or until the next call in the same thread.
 */

/* clang-format off */
/* Life of a process:
 *   headroom_configure()      once, before the first allocation; without it, HEADROOM_RUN_* variables
 *                             are read at the first allocation
 *   headroom_malloc/free ...  set as the functions of PyTorch's CUDAPluggableAllocator
 *   headroom_report()         what happened, as JSON; at any time
 *   headroom_finish()         at exit: closes recordings, waits for a plan that is being written
 */
/* clang-format on */
#ifndef HEADROOM_RUNTIME_ABI_H
#define HEADROOM_RUNTIME_ABI_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define HEADROOM_RUNTIME_ABI_VERSION 1
#define HEADROOM_EXPORT __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/* HEADROOM_RUNTIME_ABI_VERSION of the library, to be compared with that of the header. */
HEADROOM_EXPORT int headroom_abi_version(void);
/* "0.1.0" */
HEADROOM_EXPORT const char* headroom_version(void);

/* ---- What PyTorch's CUDAPluggableAllocator calls: pass these to the setters of the same name.
 * ---- A stream is a cudaStream_t (CUstream); null is the default stream. */

/* Null for size 0, and where there is no memory (then headroom_error() says why and the handler of
 * headroom_on_out_of_memory was called). */
HEADROOM_EXPORT void* headroom_malloc(ssize_t size, int device, void* stream);
/* `size`, `device` and `stream` are not believed: the pointer alone says what it is. A pointer that
 * is not ours, or null, is ignored and counted (report: unknown_frees). */
HEADROOM_EXPORT void headroom_free(void* pointer, ssize_t size, int device, void* stream);
HEADROOM_EXPORT void headroom_init(int device_count); /* set_init_fn */
HEADROOM_EXPORT void headroom_reset(void);            /* set_reset_fn: empty_cache of all devices */
/* set_memory_fraction_fn: of the device's total memory, for what this process reserves. */
HEADROOM_EXPORT void headroom_set_memory_fraction(double fraction, int device);
HEADROOM_EXPORT double headroom_get_memory_fraction(int device);
/* set_base_alloc_fn: where the driver's allocation that holds `pointer` begins, and its size. */
HEADROOM_EXPORT void* headroom_get_base_allocation(void* pointer, size_t* size);
/* set_record_stream_fn: the block is not given to another until `stream` has done what is queued on
 * it when the block is freed. */
HEADROOM_EXPORT void headroom_record_stream(void* pointer, void* stream);

/* Graph capture. While a pool is begun, requests whose stream passes the filter are served from it,
 * and from nothing else; its addresses stay mapped and unshared until it is released and its blocks
 * are free. A null filter takes every stream. */
typedef int (*headroom_stream_filter)(void* stream, void* context);
HEADROOM_EXPORT void headroom_pool_begin(int device, uint64_t id_first, uint64_t id_second,
                                         headroom_stream_filter filter, void* context);
HEADROOM_EXPORT void headroom_pool_end(int device, uint64_t id_first, uint64_t id_second);
HEADROOM_EXPORT void headroom_pool_release(int device, uint64_t id_first, uint64_t id_second);
/* The same with the C++ signatures of PyTorch's setters, for their address only (from Python:
 * ctypes.cast(lib.headroom_begin_allocate_to_pool, c_void_p).value): set_begin_allocate_to_pool,
 * set_end_allocate_to_pool_fn, set_release_pool.
 *   void headroom_begin_allocate_to_pool(int, std::pair<unsigned long long, unsigned long long>,
 *                                        std::function<bool(cudaStream_t)>);
 *   void headroom_end_allocate_to_pool(int, std::pair<unsigned long long, unsigned long long>);
 *   void headroom_release_pool(int, std::pair<unsigned long long, unsigned long long>); */

/* Called with no lock held in the thread whose request cannot be served, after everything cached or
 * unmapped was given back. `message` begins as PyTorch's own does ("CUDA out of memory. Tried to
 * allocate ..."). The handler may throw a C++ exception, which leaves headroom_malloc as it is: the
 * glue throws c10::OutOfMemoryError here. If it returns, headroom_malloc returns null. */
typedef void (*headroom_out_of_memory_handler)(const char* message, int device, void* context);
HEADROOM_EXPORT void headroom_on_out_of_memory(headroom_out_of_memory_handler handler,
                                               void* context);

/* A handler that throws c10::OutOfMemoryError, as code around PyTorch expects it; found by name in
 * the libc10.so that the process has loaded (runtime/torch_error.h).
 * headroom_torch_errors_missing() is 0 where all that it needs was found; else it would return. */
HEADROOM_EXPORT int headroom_torch_errors_missing(void);
HEADROOM_EXPORT void headroom_throw_torch_out_of_memory(const char* message, int device,
                                                        void* context);

/* ---- Configuration ---- */

enum headroom_mode {
  HEADROOM_MODE_RUN = 0,    /* record, plan in the background, serve from the plan */
  HEADROOM_MODE_RECORD = 1, /* serve by best fit, write recordings; no plan is made */
  HEADROOM_MODE_SERVE = 2,  /* serve from plan_path; nothing is recorded, no plan is made */
  HEADROOM_MODE_OFF = 3     /* serve by best fit; for comparison */
};

typedef struct headroom_configuration {
  uint32_t struct_bytes;   /* sizeof(headroom_configuration) */
  int32_t mode;            /* headroom_mode */
  const char* plan_path;   /* may be null. %d is the device, %r the rank. Read at the first
                              allocation; one that is damaged or foreign is refused with a reason
                              (report: plan_refused) and the run goes on without it. */
  const char* plan_out;    /* may be null: where the plan that was made is written; %d, %r */
  const char* record_path; /* may be null: recordings (docs/formats/recording.md); %d, %r */
  const char* driver_path; /* may be null: a library in the driver's place (libcuda.so.1) */
  int32_t rank;            /* for %r and the recording's header */
  int32_t world_size;
  int64_t flags; /* HEADROOM_FLAG_* */
} headroom_configuration;

/* Flags: cuMemAlloc backing even where pages could be mapped; a plan that serves even where best
 * fit is predicted to need less; copies between devices are made by calls that name both (the shim
 * makes them so), so that pages do without peer access. */
#define HEADROOM_FLAG_NO_VIRTUAL_MEMORY 1
#define HEADROOM_FLAG_ALWAYS_PLAN 2
#define HEADROOM_FLAG_COPIES_NAME_DEVICES 4

/* 0, or -1 where it was refused: headroom_error() says why. Only before the first allocation.
 * Without it: HEADROOM_RUN_MODE (run, record, serve, off), HEADROOM_RUN_PLAN,
 * HEADROOM_RUN_PLAN_OUT, HEADROOM_RUN_RECORD, HEADROOM_CUDA_DRIVER, RANK and WORLD_SIZE are read at
 * the first allocation. */
HEADROOM_EXPORT int headroom_configure(const headroom_configuration* configuration);
/* Why the last call in this thread failed; "" where none did. */
HEADROOM_EXPORT const char* headroom_error(void);
/* 0 where a driver with everything that is needed can be loaded. Makes no CUDA call. */
HEADROOM_EXPORT int headroom_probe_driver(void);

/* An iteration begins (the optimizer's step is done): a mark in the recording, where there is one,
 * and for the planner, which takes nothing without a mark in it for an iteration once there was
 * one. device -1: all. Never needed. */
HEADROOM_EXPORT void headroom_iteration(int device);
/* An optimizer was made: its steps will be marked by headroom_iteration(). Until the first one, the
 * planner believes little. May be called before the first allocation. Never needed. */
HEADROOM_EXPORT void headroom_expect_iterations(void);

/* What the program itself puts in order between its streams: an event is about to be recorded on
 * `stream` (the call comes before the recording), and from now on a stream waits for it (the call
 * comes after the wait was queued). Memory that one stream released before the event may then be
 * the other's while the device is still at work on it. What is not told is not known, and nothing
 * is wrong for it; what is told must be so. The event's ticket; 0, which means nothing, where the
 * stream is being captured, or the device was not used yet. Only of streams that live as long as
 * the process, as PyTorch's own do. */
HEADROOM_EXPORT uint64_t headroom_event_recorded(int device, void* stream);
HEADROOM_EXPORT void headroom_event_waited(int device, void* stream, uint64_t event);
/* From now on no stream is made to wait by the allocator (docs/algorithms/runtime.md, joins): for
 * programs whose ranks wait for one another in other ways than all alike, as where one sends and
 * another receives. May be called before the first allocation; for good. */
HEADROOM_EXPORT void headroom_forbid_joins(void);

/* ---- Statistics, as torch.cuda.memory_stats() has them ---- */

typedef struct headroom_figure {
  int64_t current;
  int64_t peak;      /* since headroom_reset_peak_statistics() */
  int64_t allocated; /* sum of all increases, since headroom_reset_accumulated_statistics() */
  int64_t freed;     /* sum of all decreases */
} headroom_figure;

typedef struct headroom_statistics {
  uint32_t struct_bytes; /* REQUIRES: set by the caller */
  uint32_t reserved;
  headroom_figure allocation;      /* blocks handed out */
  headroom_figure segment;         /* pieces of memory from the driver: pages, or segments */
  headroom_figure active;          /* blocks handed out, or released and awaiting an event */
  headroom_figure inactive_split;  /* free blocks in memory that is held */
  headroom_figure allocated_bytes; /* rounded up to 512 */
  headroom_figure reserved_bytes;  /* memory from the driver */
  headroom_figure active_bytes;
  headroom_figure inactive_split_bytes;
  headroom_figure requested_bytes; /* as asked for */
  int64_t num_alloc_retries;
  int64_t num_ooms;
  int64_t num_sync_all_streams;
  int64_t num_device_alloc; /* cuMemCreate and cuMemAlloc */
  int64_t num_device_free;
  /* Ours: where requests were served. */
  int64_t planned_requests;  /* in their slot of the plan */
  int64_t reused_requests;   /* in planned space that is idle: dynamic reusable space */
  int64_t general_requests;  /* by best fit: before the plan, and what fell back since */
  int64_t fallback_requests; /* of those, since the plan serves */
  int64_t is_planned;        /* 1 since a plan serves */
} headroom_statistics;

/* 0, or -1 where the device is not one that was used: then all is zero. */
HEADROOM_EXPORT int headroom_get_statistics(int device, headroom_statistics* statistics);
HEADROOM_EXPORT void headroom_reset_peak_statistics(int device);
HEADROOM_EXPORT void headroom_reset_accumulated_statistics(int device);
/* cudaMemGetInfo. 0, or -1 where the driver does not say: then of what is free alone, which stays.
 */
HEADROOM_EXPORT int headroom_memory_info(int device, int64_t* free_bytes, int64_t* total_bytes);

/* ---- For a shim that is compiled against PyTorch (python/headroom/run/shim): it subclasses
 * ---- PyTorch's own class, and has another allocator beside this one ---- */

/* As headroom_free(), and tells: the block's bytes, rounded as in allocated_bytes; 0 where the
 * pointer is not a live block of ours, and then nothing was done or counted; -1 in a child of
 * fork(), where nothing is freed. `device`: where the pointer is looked for first. */
HEADROOM_EXPORT int64_t headroom_release(void* pointer, int device);
/* The device of a live block of ours; -1 where it is none. */
HEADROOM_EXPORT int headroom_device_of(void* pointer);
/* The longest stretch that is mapped and free, as one request could have it without a call to the
 * driver; 0 where the device was not used. */
HEADROOM_EXPORT int64_t headroom_largest_free_block(int device);
/* A graph is being captured, whose own requests go elsewhere: until the end nothing is unmapped,
 * waited for or queried. Calls nest; an end without a beginning is ignored. */
HEADROOM_EXPORT void headroom_capture_begin(int device);
HEADROOM_EXPORT void headroom_capture_end(int device);

/* Asked, with no lock held, before a request is refused: gives back what it has cached of the
 * device's memory, and returns whether there was any. May not throw. */
typedef int (*headroom_memory_wanted_handler)(int64_t bytes, int device, void* context);
HEADROOM_EXPORT void headroom_on_memory_wanted(headroom_memory_wanted_handler handler,
                                               void* context);

enum headroom_block_state {
  HEADROOM_BLOCK_FREE = 0,
  HEADROOM_BLOCK_LIVE = 1,
  HEADROOM_BLOCK_PENDING = 2 /* released, and awaiting another stream */
};
typedef struct headroom_block {
  int64_t address;
  int64_t bytes;
  int64_t requested_bytes; /* 0 where it is free */
  int64_t state;           /* headroom_block_state */
} headroom_block;
typedef struct headroom_segment {
  uint32_t struct_bytes;
  int32_t device;
  int64_t address;
  int64_t bytes;
  void* stream;
  uint64_t pool_first;
  uint64_t pool_second;
  int32_t is_small;
  int32_t is_paged;    /* shown by PyTorch as expandable */
  int64_t block_count; /* they tile the segment */
  const headroom_block* blocks;
} headroom_segment;
/* What headroom_snapshot() writes, segment by segment, with no lock held. May not throw. */
typedef void (*headroom_segment_visitor)(const headroom_segment* segment, void* context);
HEADROOM_EXPORT void headroom_visit_segments(int device, headroom_segment_visitor visit,
                                             void* context);

/* ---- What happened ---- */

/* JSON into `buffer` (zero-terminated, cut where it does not fit); returns the bytes that the whole
 * text needs without its zero, so that a first call with capacity 0 sizes the buffer.
 * Report: {"schema": "headroom.run_report/1", "devices": [...]}; keys carry their units. */
HEADROOM_EXPORT int64_t headroom_report(char* buffer, int64_t capacity);
/* Segments and blocks as in torch.cuda.memory_snapshot(), as a JSON list; frames and traces are
 * empty lists. */
HEADROOM_EXPORT int64_t headroom_snapshot(int device, char* buffer, int64_t capacity);

/* Closes recordings, lets a plan that is being made be written (plan_out) for at most five seconds,
 * and stops the planner; returns a second later where its thread does not come to an end.
 * Allocation goes on working. Call at exit, before the interpreter goes. */
HEADROOM_EXPORT void headroom_finish(void);

#ifdef __cplusplus
}
#endif

#endif /* HEADROOM_RUNTIME_ABI_H */
