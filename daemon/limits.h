/* Every amount that a client or an operator can choose, with its default and its bounds. Tests try
 * each at N and N + 1. */
#ifndef DAEMON_LIMITS_H
#define DAEMON_LIMITS_H

/* rows of a batch; K of a block. A request may not have more of either. */
#define LIMIT_ROWS_DEFAULT  64
#define LIMIT_ROWS_MAX      1024
#define LIMIT_STEPS_DEFAULT 8
#define LIMIT_STEPS_MAX     16

/* GPUs that may be listed, and so replicas; a group of GPUs is as large at most */
#define LIMIT_DEVICES_MAX  32
#define LIMIT_REPLICAS_MAX LIMIT_DEVICES_MAX

#define LIMIT_CONNECTIONS_DEFAULT 1024
#define LIMIT_CONNECTIONS_MAX     65536

/* requests of one connection whose reply is not written yet; requests of all connections that wait
 */
#define LIMIT_INFLIGHT_DEFAULT 64
#define LIMIT_INFLIGHT_MAX     4096
#define LIMIT_QUEUE_DEFAULT    4096
#define LIMIT_QUEUE_MAX        65536

#define LIMIT_REGIONS_DEFAULT      16
#define LIMIT_REGIONS_MAX          1024
#define LIMIT_REGION_BYTES_DEFAULT (1ull << 30)
#define LIMIT_REGION_BYTES_MAX     (1ull << 40)
#define LIMIT_MEMORY_BYTES_DEFAULT (8ull << 30) /* regions of all connections */
#define LIMIT_MEMORY_BYTES_MAX     (1ull << 44)

/* device memory of all connections' regions; 0: none */
#define LIMIT_DEVICE_BYTES_DEFAULT (4ull << 30)
#define LIMIT_DEVICE_BYTES_MAX     (1ull << 44)

/* events of one connection */
#define LIMIT_EVENTS 4

#define LIMIT_FRAME_BYTES_MIN      (64u << 10)
#define LIMIT_FRAME_BYTES_DEFAULT  (64u << 20)
#define LIMIT_FRAME_BYTES_MAX      (1u << 30)
#define LIMIT_OUTPUT_BYTES_DEFAULT (256ull << 20) /* unread replies of one connection */
#define LIMIT_OUTPUT_BYTES_MAX     (1ull << 36)

#define LIMIT_HELLO_TIMEOUT_US_DEFAULT 5000000ull
#define LIMIT_FRAME_TIMEOUT_US_DEFAULT 30000000ull /* from a frame's first byte to its last */
#define LIMIT_DRAIN_TIMEOUT_US_DEFAULT 10000000ull
#define LIMIT_EVENT_TIMEOUT_US_DEFAULT 1000000ull /* from a draft's arrival to its event */
#define LIMIT_TIMEOUT_US_MAX           3600000000ull

/* Memory held for inline logits, columns, unread replies and unfinished frames: of one connection's
 * requests, and of everything together. Each is a base plus so many times max_frame_bytes. */
#define LIMIT_HELD_BYTES_CONNECTION  (1ull << 20)
#define LIMIT_HELD_FRAMES_CONNECTION 4
#define LIMIT_HELD_BYTES_TOTAL       (256ull << 20)
#define LIMIT_HELD_FRAMES_TOTAL      16

/* Unread or unfinished bytes for which nobody is closed when all is used. */
#define LIMIT_SPARED_BYTES (64u << 10)

/* Small replies that wait to be read share memory in pieces of at most this. */
#define LIMIT_PARCEL_BYTES (64u << 10)

/* After a connection that had so much unread, free memory is given back to the system. */
#define LIMIT_TRIM_BYTES (8ull << 20)

/* Pages of regions are found and given back in slices, between which other regions have their turn.
 */
#define LIMIT_REGION_SLICE_BYTES (32ull << 20)

/* Regions up to this are pinned, so that a GPU copies from and to them by itself. The driver takes
 * in the order of a quarter of a second a GiB, during which a stop waits and launches may; larger
 * ones are copied by the processor. */
#define LIMIT_PINNED_BYTES (4ull << 30)

/* Inline base up to this is copied, a longer one keeps its frame. */
#define LIMIT_COPY_BYTES (64u << 10)

/* What one client gets in one turn of the loop before the others have theirs. */
#define LIMIT_TURN_FRAMES       16
#define LIMIT_TURN_BYTES        (256u << 10) /* received */
#define LIMIT_TURN_OUTPUT_BYTES (1u << 20)
#define LIMIT_TURN_ACCEPTS      2

/* What all those together get in one turn of the loop for whom their last turn was not enough: the
 * others don't wait longer for them. */
#define LIMIT_TURN_US 20ull

/* Launches in a row that priority 1 may lead while priority 0 waits. */
#define LIMIT_PRIORITY_LAUNCHES 4

/* How long a launch waits at most for requests that are due back, when it could begin with those
 * that are there. */
#define LIMIT_GATHER_US 500ull

/* A launch that follows another at once is put on the device so long before the end that is
 * expected of that one: what it takes to gather 32 requests and to launch them. Nothing that
 * arrives later is in it. */
#define LIMIT_AHEAD_US 30ull

/* Launches that do not wait for anybody after waiting has failed again and again. */
#define LIMIT_GATHER_PAUSE 64

/* How long a thread may go on looking for news after the last draft, before it sleeps. */
#define LIMIT_SPIN_US_MAX 1000000ull

/* Drafts that wait for an event: how many events are asked between two launches, at a microsecond
 * each (all have their turn), and how long the engine sleeps between looks when it does not spin.
 */
#define LIMIT_HELD_LOOKS  64
#define LIMIT_HELD_NAP_US 50ull

/* Memory of drafts and of their replies that is kept for the next ones: so many pieces of each,
 * none larger than this. */
#define LIMIT_SPARE_PIECES 256
#define LIMIT_SPARE_BYTES  (8u << 10)

#define LIMIT_BACKLOG 4096

/* Descriptors that must be free at the start, beside the clients': the loop, the socket and its
 * lock, the model, the log. */
#define LIMIT_DESCRIPTORS_FREE 16

/* How long things may take: to read the last words before being closed, to go on sending frames
 * that are still answered while the daemon drains (and between looks at who reads), to read nothing
 * meanwhile although replies wait, to close after the daemon's end of stream, to wait when the
 * process ran out of descriptors, to wait when the service manager's socket is full, for a launch
 * until it counts as a hang, for the last launch at the exit. */
#define LIMIT_CLOSE_TIMEOUT_US 1000000ull
#define LIMIT_DRAIN_READ_US    1000000ull
#define LIMIT_DRAIN_UNREAD_US  10000000ull
#define LIMIT_LINGER_US        200000ull
#define LIMIT_ACCEPT_RETRY_US  100000ull
#define LIMIT_NOTIFY_RETRY_US  50000ull
#define LIMIT_LAUNCH_US        30000000ull
#define LIMIT_STOP_TIMEOUT_US  5000000ull

/* The CUDA backend's own look at a hanging launch comes before ours; device memory of its graphs.
 */
#define LIMIT_CUDA_LAUNCH_US_MIN     10000ull
#define LIMIT_CUDA_LAUNCH_US_DEFAULT 10000000ull
#define LIMIT_CUDA_LAUNCH_US_MAX     (LIMIT_LAUNCH_US - 1000000ull)
#define LIMIT_GRAPH_BYTES_MIN        (1ull << 20)
#define LIMIT_GRAPH_BYTES_DEFAULT    (1ull << 30)
#define LIMIT_GRAPH_BYTES_MAX        (1ull << 40)

/* On the CPU a launch may take longer, by its size: rows * K * vocab * rank multiplications at so
 * many a microsecond, which a single slow core without vector instructions exceeds. */
#define LIMIT_LAUNCH_CPU_PER_US 100

/* Lines of the log about clients: so many a second, after a burst of so many. What is beyond is
 * counted, and the count is logged. */
#define LIMIT_LOG_LINES_PER_S 50
#define LIMIT_LOG_LINES_BURST 200

/* A load says to the service manager every so often that it goes on, and that it may take so much
 * longer; one that takes no longer than this is not worth a line of the log for each phase. */
#define LIMIT_LOAD_SAYS_US      1000000ull
#define LIMIT_LOAD_EXTENSION_US 30000000ull
#define LIMIT_LOAD_QUIET_US     1000000ull

#define LIMIT_THREADS_MAX       256
#define LIMIT_CONFIG_LINE_BYTES 4096
#define LIMIT_CONFIG_FILE_BYTES (1 << 20)
#define LIMIT_SOCKET_PATH_BYTES 107 /* sun_path less its NUL */

#endif
