/* SPDX-License-Identifier: MIT */
/* verbena devices: what the registry finds on this host, and what not, and why.
 * Under `verbena run` the emulated device. */
#define _GNU_SOURCE
#include "fault/fault.h"

#include <argp.h>
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "fault/tool.h"

static const struct argp_option options[] = {
	{"json", 'j', NULL, 0, "for machines", 0},
	{0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	if (key == ARGP_KEY_ARG)
		argp_error(state, "unexpected '%s'", arg);
	if (key != 'j')
		return ARGP_ERR_UNKNOWN;
	*(bool *)state->input = true;
	return 0;
}

static const char *why_word(enum vb_why why)
{
	switch (why) {
	case VB_OPEN_FAILED:
		return "open-failed";
	case VB_UNCLAIMED:
		return "unclaimed";
	case VB_UNUSABLE:
		return "unusable";
	case VB_QUERY_FAILED:
		return "query-failed";
	}
	return "unknown";
}

static const char *state_word(unsigned state)
{
	static const char *const words[] = {"nop",   "down",   "init",
					    "armed", "active", "active-defer"};

	return state < sizeof(words) / sizeof(*words) ? words[state] : "?";
}

static void tell(const struct vb_devices *devices,
		 const struct vb_report *report)
{
	if (devices->count)
		printf("%-16s %-10s %-16s %-6s %-8s %s\n", "DEVICE", "BACKEND",
		       "GUID", "PORTS", "STATE", "MB/s");
	for (int i = 0; i < devices->count; i++) {
		const struct vb_device_info *info = &devices->info[i];

		printf("%-16s %-10s %016" PRIx64 " %-6d %-8s %u\n", info->name,
		       info->backend, info->node_guid, info->port_count,
		       info->port_count ? state_word(info->ports[0].state)
					: "-",
		       vb_speed_mbytes(info));
	}
	for (int i = 0; i < report->count; i++)
		printf("%-16s %-10s not offered: %s: %s\n",
		       report->absent[i].name,
		       report->absent[i].backend ? report->absent[i].backend
						 : "-",
		       why_word(report->absent[i].why), report->absent[i].text);
	if (!devices->count && !report->count)
		printf("no RDMA devices%s%s\n", report->list_error ? ": " : "",
		       report->list_error ? strerror(-report->list_error) : "");
}

static json_t *ports_json(const struct vb_device_info *info)
{
	json_t *ports = json_array();

	for (int i = 0; i < info->port_count; i++) {
		const struct vb_port *port = &info->ports[i];

		json_array_append_new(
			ports,
			json_pack("{s:i, s:s, s:i, s:i, s:i, s:I, s:i}", "port",
				  port->num, "state", state_word(port->state),
				  "link_layer", port->link_layer, "lid",
				  port->lid, "active_mtu", port->active_mtu,
				  "max_msg_bytes",
				  (json_int_t)port->max_msg_bytes, "gids",
				  port->gid_count));
	}
	return ports;
}

static void tell_json(const struct vb_devices *devices,
		      const struct vb_report *report)
{
	json_t *offered = json_array(), *absent = json_array(), *root;
	char guid[20];

	for (int i = 0; i < devices->count; i++) {
		const struct vb_device_info *info = &devices->info[i];

		snprintf(guid, sizeof(guid), "%016" PRIx64, info->node_guid);
		json_array_append_new(
			offered,
			json_pack("{s:s, s:s, s:s, s:i, s:i, s:o}", "name",
				  info->name, "backend", info->backend,
				  "node_guid", guid, "vendor_id",
				  (int)info->vendor_id, "mbytes_per_s",
				  (int)vb_speed_mbytes(info), "ports",
				  ports_json(info)));
	}
	for (int i = 0; i < report->count; i++)
		json_array_append_new(
			absent, json_pack("{s:s, s:s?, s:s, s:i, s:s}", "name",
					  report->absent[i].name, "backend",
					  report->absent[i].backend, "why",
					  why_word(report->absent[i].why),
					  "error", report->absent[i].error,
					  "text", report->absent[i].text));
	root = json_pack("{s:I, s:i, s:o, s:o}", "generation",
			 (json_int_t)report->generation, "list_error",
			 report->list_error, "devices", offered, "not_offered",
			 absent);
	json_dumpf(root, stdout, JSON_INDENT(2));
	printf("\n");
	json_decref(root);
}

int cmd_devices(int argc, char **argv)
{
	static const struct argp argp = {
		options,
		parse,
		NULL,
		"The RDMA devices that libverbena finds on this host, and why "
		"others are not offered. Under `verbena run` the emulated one."
		"\vExit status: 0 when there is a device, 1 when there is "
		"none.",
		NULL,
		NULL,
		NULL};
	struct vb_registry *registry;
	struct vb_devices devices;
	struct vb_report report;
	bool is_json = false, is_any;

	argv[0] = "verbena devices";
	argp_parse(&argp, argc, argv, 0, NULL, &is_json);
	if (vb_registry_create(NULL, &registry) ||
	    vb_devices_list(registry, NULL, &devices) ||
	    vb_registry_report(registry, &report))
		return tool_refuse(vb_last_error());
	if (is_json)
		tell_json(&devices, &report);
	else
		tell(&devices, &report);
	is_any = devices.count > 0;
	vb_report_free(&report);
	vb_devices_free(&devices);
	vb_registry_destroy(registry);
	return is_any ? 0 : EXIT_BAD;
}
