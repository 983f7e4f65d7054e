/* SPDX-License-Identifier: MIT */
/*
 * A scripted host: a verbs table whose devices are as a test says, and which
 * logs each call ("list open:a query:a close:a free "). One at a time; a test
 * fills `fake` after fake_init.
 */
#ifndef TESTS_LIB_FAKE_H
#define TESTS_LIB_FAKE_H

#include "lib/registry.h"

#define FAKE_DEVICES 8
#define FAKE_PORTS   4
#define FAKE_GIDS    8

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

struct fake {
	int list_errno; /* the list is NULL */
	int count;
	struct fake_device device[FAKE_DEVICES];
	int lists, frees;
	bool lacks_query_gid_ex;
	int pd_errno, mr_errno; /* of the next ones */
	int dealloc_rc, dereg_rc;
	int access; /* of the last region */
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

#endif
