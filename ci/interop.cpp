/* SPDX-License-Identifier: MIT */
/*
 * One end of a stream, over lib or over "the seed": llama.cpp's transport for
 * Apple's devices, whose wire format lib's compat mode speaks. ci/interop.sh
 * compiles that as it is, with the headers that it makes.
 *
 *   interop ours|seed server BYTES         first prints the port it listens on
 *   interop ours|seed client BYTES PORT
 *
 * The client sends BYTES to the server, then the server as many to the client.
 * An end prints how many seconds its receiving took, or says on stderr what
 * went wrong and exits 1.
 */
#include "lib/verbena.h"
#include "transport-apple.h"
#include "transport.h"

#include <arpa/inet.h>
#include <chrono>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <memory>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

static_assert(RPC_CONN_CAPS_SIZE == VB_CAPS_BYTES, "one exchange for both");

/* From empty, the first call fills a frame's payload, and the second is one
 * byte more. Receives are cut elsewhere, and the two do not fall in step. */
static const size_t send_sizes[] = {131064, 131065, 1, 7, 262144, 1000003};
static const size_t recv_sizes[] = {3, 131066, 1, 524288, 8, 999983};
static const size_t size_count = 6, largest = 1000003;

static std::string who;

__attribute__((noreturn, format(printf, 1, 2))) static void
fail(const char *format, ...)
{
	va_list args;

	fprintf(stderr, "interop: %s: ", who.c_str());
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	/* Not exit: the transport may be in any state. */
	_exit(1);
}

/* The seed asks whether Apple's library is there before it calls what is linked
 * here; its dlopen is this one (-D). */
extern "C" void *interop_dlopen(const char *path, int flags)
{
	if (strcmp(path, "/usr/lib/librdma.dylib") == 0)
		path = "libibverbs.so.1";
	return dlopen(path, flags);
}

/* --- the two transports --------------------------------------------------- */

struct transport {
	virtual ~transport() = default;
	virtual void probe(int fd, uint8_t *caps) = 0;
	virtual void activate(const uint8_t *caps) = 0;
	/* All three: did it go well? */
	virtual bool send(const void *data, size_t size) = 0;
	virtual bool recv(void *data, size_t size) = 0;
	virtual bool flush() = 0;
	virtual void close() = 0;
	virtual const char *why() = 0;
};

struct ours : transport {
	struct vb_transport *t = nullptr;
	enum vb_mode mode;

	ours(enum vb_mode with) : mode(with)
	{
	}

	void probe(int fd, uint8_t *caps) override
	{
		struct vb_options options = {};
		struct vb_cause cause;

		options.fd = fd;
		options.mode = mode;
		if (vb_probe(&options, caps, &t, &cause) != 0)
			fail("probe: %s", cause.text);
	}
	void activate(const uint8_t *caps) override
	{
		int rc = vb_activate(t, caps);

		if (rc != 0)
			fail("activate: %d: %s", rc, why());
	}
	bool send(const void *data, size_t size) override
	{
		return vb_send(t, data, size) == 0;
	}
	bool recv(void *data, size_t size) override
	{
		return vb_recv(t, data, size) == 0;
	}
	bool flush() override
	{
		return vb_flush(t) == 0;
	}
	void close() override
	{
		struct vb_cause cause;

		if (vb_close(t, &cause) != 0)
			fail("close: %s", cause.text);
	}
	const char *why() override
	{
		return vb_cause(t)->text;
	}
};

struct seed : transport {
	std::unique_ptr<apple_rdma> t;

	void probe(int fd, uint8_t *caps) override
	{
		struct sockaddr_in at = {};
		socklen_t len = sizeof(at);
		uint8_t gid[16] = {};

		/* Where its caller would find it: ::ffff:a.b.c.d. */
		if (getsockname(fd, (struct sockaddr *)&at, &len) != 0)
			fail("getsockname: %m");
		gid[10] = gid[11] = 0xff;
		memcpy(gid + 12, &at.sin_addr, 4);
		t = apple_rdma::probe(fd, gid, caps);
		if (!t)
			fail("probe found no device that it can use");
	}
	void activate(const uint8_t *caps) override
	{
		if (!t->activate(caps))
			fail("activate failed");
	}
	bool send(const void *data, size_t size) override
	{
		return t->send(data, size);
	}
	bool recv(void *data, size_t size) override
	{
		return t->recv(data, size);
	}
	bool flush() override
	{
		return t->flush();
	}
	void close() override
	{
		t.reset();
	}
	const char *why() override
	{
		return t->broken() ? "broken" : "the peer is gone";
	}
};

/* --- the stream ----------------------------------------------------------- */

/* Bytes of the stream of an end (0: the client) from `at` on; until the next
 * call. Each eight of them depend on where they are. */
static const uint8_t *pattern(unsigned sender, uint64_t at, size_t len)
{
	static std::vector<uint64_t> words(largest / 8 + 2);
	size_t skip = at % 8;

	for (size_t i = 0; i < (skip + len + 7) / 8; i++) {
		uint64_t x = (at / 8 + i + 1) * 0x9e3779b97f4a7c15 + sender;

		x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
		words[i] = x ^ (x >> 29);
	}
	return (const uint8_t *)words.data() + skip;
}

static void send_stream(transport &t, unsigned sender, uint64_t bytes)
{
	size_t turn = 0;

	for (uint64_t at = 0; at < bytes;) {
		size_t len = send_sizes[turn];

		if (len > bytes - at)
			len = (size_t)(bytes - at);
		if (!t.send(pattern(sender, at, len), len))
			fail("send of %zu at byte %llu: %s", len,
			     (unsigned long long)at, t.why());
		at += len;
		turn = (turn + 1) % size_count;
		/* Partial frames in the midst, too. */
		if ((turn == 0 || at == bytes) && !t.flush())
			fail("flush at byte %llu: %s", (unsigned long long)at,
			     t.why());
	}
}

static void recv_stream(transport &t, unsigned sender, uint64_t bytes)
{
	std::vector<uint8_t> got(largest);
	size_t turn = 0;

	for (uint64_t at = 0; at < bytes;) {
		size_t len = recv_sizes[turn], i = 0;
		const uint8_t *want;

		if (len > bytes - at)
			len = (size_t)(bytes - at);
		/* What it leaves as it was must not pass: that of before. */
		memset(got.data(), 0, len);
		if (!t.recv(got.data(), len))
			fail("receive of %zu at byte %llu: %s", len,
			     (unsigned long long)at, t.why());
		want = pattern(sender, at, len);
		if (memcmp(got.data(), want, len) != 0) {
			while (got[i] == want[i])
				i++;
			fail("byte %llu is 0x%02x, not 0x%02x",
			     (unsigned long long)(at + i), got[i], want[i]);
		}
		at += len;
		turn = (turn + 1) % size_count;
	}
}

/* --- the socket ----------------------------------------------------------- */

/* The client's is connected to `port`; the server's to the one that comes. */
static int meet(bool is_server, int port)
{
	struct sockaddr_in at = {};
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;

	at.sin_family = AF_INET;
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	at.sin_port = htons((uint16_t)port);
	if (is_server) {
		int listener = fd;

		if (bind(listener, (struct sockaddr *)&at, len) != 0 ||
		    listen(listener, 1) != 0 ||
		    getsockname(listener, (struct sockaddr *)&at, &len) != 0)
			fail("cannot listen: %m");
		printf("%d\n", ntohs(at.sin_port));
		fflush(stdout);
		fd = accept(listener, nullptr, nullptr);
		if (fd < 0)
			fail("accept: %m");
		close(listener);
	} else if (connect(fd, (struct sockaddr *)&at, len) != 0) {
		fail("cannot connect to port %d: %m", port);
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	return fd;
}

static void connect_transport(transport &t, int fd)
{
	uint8_t mine[VB_CAPS_BYTES] = {}, peer[VB_CAPS_BYTES];

	t.probe(fd, mine);
	if (send(fd, mine, sizeof(mine), 0) != (ssize_t)sizeof(mine) ||
	    recv(fd, peer, sizeof(peer), MSG_WAITALL) != (ssize_t)sizeof(peer))
		fail("no capabilities from the peer");
	t.activate(peer);
}

int main(int argc, char **argv)
{
	bool is_hardened = argc > 1 && strcmp(argv[1], "hardened") == 0;
	bool is_ours = argc > 1 && (is_hardened || strcmp(argv[1], "ours") == 0);
	bool is_server = argc == 4 && strcmp(argv[2], "server") == 0;
	std::unique_ptr<transport> t;
	uint64_t bytes;
	uint8_t byte;
	char *rest;
	int fd;

	if ((!is_ours && (argc < 2 || strcmp(argv[1], "seed") != 0)) ||
	    (!is_server && (argc != 5 || strcmp(argv[2], "client") != 0))) {
		fprintf(stderr, "usage: interop ours|hardened|seed server BYTES\n"
				"       interop ours|hardened|seed client BYTES "
				"PORT\n");
		return 2;
	}
	who = std::string(argv[1]) + " " + argv[2];
	bytes = strtoull(argv[3], &rest, 0);
	if (bytes == 0 || *rest)
		fail("'%s' is no number of bytes", argv[3]);
	/* The seed's readiness byte may go to a peer that is gone (D-A14). */
	signal(SIGPIPE, SIG_IGN);
	if (is_ours)
		t.reset(new ours(is_hardened ? VB_HARDENED : VB_COMPAT));
	else
		t.reset(new seed);
	fd = meet(is_server, is_server ? 0 : atoi(argv[4]));
	connect_transport(*t, fd);
	if (!is_server)
		send_stream(*t, 0, bytes);
	auto start = std::chrono::steady_clock::now();
	recv_stream(*t, is_server ? 0 : 1, bytes);
	std::chrono::duration<double> took =
		std::chrono::steady_clock::now() - start;
	if (is_server) {
		send_stream(*t, 1, bytes);
		/* The seed takes its queue pair away with sends in it (D-A7):
		 * not before the client has all, and ends the connection. */
		if (recv(fd, &byte, 1, 0) != 0)
			fail("the connection did not end as it should");
	}
	t->close();
	close(fd);
	printf("%.6f\n", took.count());
	return 0;
}
