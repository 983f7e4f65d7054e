/* SPDX-License-Identifier: MIT */
/*
 * A scripted host: a verbs table whose devices are as a test says, and which
 * logs each call ("list open:a query:a close:a free "). One at a time; a test
 * fills `fake` after fake_init. What a queue pair needs comes from malloc: the
 * sanitizer sees what is ended twice or not.
 */
#ifndef TESTS_LIB_FAKE_H
#define TESTS_LIB_FAKE_H

#include <errno.h>

#include "lib/registry.h"

#define FAKE_DEVICES 8
#define FAKE_PORTS   4
#define FAKE_GIDS    304 /* more than an index of 8 bits tells */

struct fake_gid {
	uint8_t raw[16];
	uint32_t type; /* enum ibv_gid_type_sysfs and others */
	int rc;	       /* of query_gid_ex; 0 */
};

struct fake_port {
	int rc;
	struct ibv_port_attr attr;
	struct fake_gid gid[FAKE_GIDS];
};

struct fake_device {
	struct ibv_device device; /* first: what the registry is handed */
	struct ibv_context context;
	const char *name;
	bool is_null; /* a NULL in the list */
	int open_errno;
	int query_rc;
	int close_rc;
	struct ibv_device_attr attr;
	struct fake_port port[FAKE_PORTS];
	bool is_efa;
	struct efadv_device_attr efa;
	struct ibv_pd pd;
	struct ibv_mr mr;
	int opens, closes;
};

struct fake_step {
	struct ibv_qp_attr attr;
	int mask;
};

#define FAKE_STEPS 8
#define FAKE_ERRNO ENOSPC /* nothing else gives it */

struct fake {
	int list_errno; /* the list is NULL */
	int count;
	struct fake_device device[FAKE_DEVICES];
	int lists, frees;
	bool lacks_query_gid_ex;
	int pd_errno, mr_errno; /* of the next ones */
	int dealloc_rc, dereg_rc;
	int access; /* of the last region */
	/* Of completion queues, queue pairs and address handles: the calls so
	 * far; which of them, from 1, fail with FAKE_ERRNO (logged as others);
	 * how many objects are there; what the last were made and moved with.
	 */
	int qp_calls, fail_at, fail_count;
	int live;
	void *refused; /* an object whose end failed: the device has it */
	struct ibv_qp_init_attr init;
	struct ibv_qp_init_attr_ex init_ex;
	struct efadv_qp_init_attr init_efa;
	struct ibv_ah_attr ah;
	struct fake_step step[FAKE_STEPS];
	int steps;
	bool lacks_ah, lacks_efadv_qp;
	char log[8192];
	char lines[4096]; /* what the registry logged */
	int warnings;
};
extern struct fake fake;

/* No devices, an empty log. */
void fake_init(void);
/* One more: this vendor, one ACTIVE port of Ethernet. */
struct fake_device *fake_add(const char *name, uint32_t vendor);
struct vb_verbs *fake_verbs(void);

/* A registry over it whose lines go to fake.lines; without the backends that
 * ship, unless `ships`. */
struct vb_registry *fake_registry(bool ships);
/* A backend's claim: every device. And a list that must hold just one. */
int fake_claim_any(const struct vb_verbs *verbs, struct ibv_context *context,
		   char reason[128]);
void fake_list_one(struct vb_registry *registry, struct vb_devices *devices);
/* How often `part` stands in the log. */
int fake_calls(const char *part);
#define CHECK_LOG(want) \
	CHECK(strcmp(fake.log, want) == 0, "'%s', want '%s'", fake.log, want)

/* --- for queue pairs --- */

/* fake_init, and mlx5_0 (RoCE, its GID at 3), efa_0, and rdma_en2 of Apple. */
void fake_add_three(void);
void fake_add_gid(struct fake_device *it, int index, uint32_t type,
		  uint8_t first);
/* Each value another, so that none can stand for another's. */
struct vb_config fake_config(void);

/* The only device of a backend, opened, and a domain; an empty log. */
struct fake_bed {
	struct vb_registry *registry;
	struct vb_device *device;
	struct vb_domain *domain;
};
void fake_bed_open(struct fake_bed *bed, const char *key,
		   const struct vb_config *config);
/* fake_add_three, and one of them with fake_config. */
struct fake_bed fake_bed(const char *key);
void fake_bed_close(struct fake_bed *bed);
struct vb_qp *fake_qp(struct fake_bed *bed, enum vb_qp_kind kind);
extern const struct vb_endpoint fake_peer;

#endif
