/* The other end of a connection: a server that does what a test tells it to, built from proto's own
 * encoders. It runs in the test's thread, or in one of its own where the client blocks. Everything
 * that it does not expect aborts. */
#ifndef TESTS_CLIENT_PEER_H
#define TESTS_CLIENT_PEER_H

#include "client/private.h"

#include <check.h>
#include <pthread.h>

#define PEER_VOCAB 5u /* odd, so that a wrong stride shows */

struct peer {
	char directory[32];
	char path[64];
	int listener;
	int fd; /* of the accepted connection */
	struct frame_reader reader;
	struct wire_buffer out;
	struct hello_reply hello; /* what it will say of itself; change it before starting */
	pthread_t thread;
	bool running;
	void (*script)(struct peer *peer);
	size_t argument; /* for the script */
};

struct request {
	struct message message;
	struct frame frame;
};

#define peer_check(condition) peer_check_at((condition), #condition, __FILE__, __LINE__)
void peer_check_at(bool condition, const char *text, const char *file, int line);

void peer_init(struct peer *peer);
void peer_done(struct peer *peer); /* joins */

/* A thread that runs `script`. */
void peer_start(struct peer *peer, void (*script)(struct peer *peer));
void peer_join(struct peer *peer);

void peer_accept(struct peer *peer); /* in place of the connection before */
void peer_hang_up(struct peer *peer);
void peer_greet(struct peer *peer); /* accept, and answer `hello` */

/* Options for the peer's socket. The timeout only ends a test that hangs. */
struct draft_options peer_options(const struct peer *peer);

/* Connects, with a peer whose end the test's thread drives from here on. */
struct draft *peer_connect(struct peer *peer);

/* The next frame, which is a request or notification of `method`. It lives until the next one. */
void peer_take(struct peer *peer, enum method method, struct request *ret);

/* Sends what was encoded into `out`, with descriptors on its first byte. */
void peer_send_with(struct peer *peer, const int *fds, unsigned fd_count);
void peer_send(struct peer *peer);

/* Encodes the reply to a draft: token i is (first + i) % vocab, row r's flags are r % 2, logits are
 * `logits` if not NULL. */
void peer_encode_draft(struct peer *peer, uint32_t id, uint32_t rows, uint32_t steps,
	uint32_t first, const uint16_t *logits);

/* A request of `rows` x `steps` over the peer's vocabulary. Arrays are static. */
struct draft_request peer_request(uint32_t rows, uint32_t steps);

/* For every test case: open descriptors are the same before and after. */
void fds_count(void);
void fds_check(void);

#endif
