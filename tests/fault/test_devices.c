/* SPDX-License-Identifier: MIT */
/*
 * Goal: `verbena devices` tells what the registry finds. Method: run as a user
 * would, with and without an emulated device.
 */
#include <jansson.h>

#include "tests/harness.h"
#include "tests/rig.h"

Test(tool, devices_are_found_by_their_backend)
{
	static const char *const rows[][2] = {{"apple-tb", "apple"},
					      {"mlx5", "mlx"},
					      {"rxe", "standard"}};
	struct rig_output out;

	for (int i = 0; i < 3; i++) {
		json_t *root, *device;

		rig_shell(&out,
			  "$VERBENA run -w %s -m %s -- $VERBENA devices --json",
			  rig_name(), rows[i][0]);
		CHECK_EQ(out.status, 0);
		root = json_loads(out.text, 0, NULL);
		CHECK(root, "%s", out.text);
		device = json_array_get(json_object_get(root, "devices"), 0);
		CHECK(strcmp(json_string_value(
				     json_object_get(device, "backend")),
			     rows[i][1]) == 0,
		      "%s", out.text);
		json_decref(root);
	}
	rig_shell(&out, "$VERBENA run -w %s -m rxe -- $VERBENA devices",
		  rig_name());
	CHECK_HAS(out.text, "standard");
	CHECK_HAS(out.text, "active");
}

Test(tool, devices_says_when_there_is_none)
{
	struct rig_output out;

	rig_shell(&out, "$VERBENA devices");
	CHECK_EQ(out.status, 1);
	CHECK_HAS(out.text, "no RDMA devices");
	rig_shell(&out, "$VERBENA devices extra");
	CHECK_EQ(out.status, 2);
}
