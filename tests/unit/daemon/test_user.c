/* Users come with their first hold and go with their last; who is limited, where the limit lies,
 * and what is said there. */
#include "daemon/connection.h"
#include "daemon/server.h"
#include "daemon/user.h"

#include <check.h>
#include <unistd.h>

Suite *user_suite(void);

START_TEST(a_user_is_one_while_it_is_held)
{
	struct link users;
	struct user *one, *other;

	link_init(&users);
	one = user_hold(&users, 1001);
	other = user_hold(&users, 1002);
	ck_assert_ptr_ne(one, other);
	ck_assert_ptr_eq(user_hold(&users, 1001), one);
	ck_assert_uint_eq(one->holds, 2);
	user_drop(one);
	ck_assert_ptr_eq(user_hold(&users, 1001), one);
	user_drop(one);
	user_drop(one);
	user_drop(other);
	user_drop(NULL);
	ck_assert(link_alone(&users));
}
END_TEST

START_TEST(limits_hold_to_one_and_not_for_operators)
{
	struct user limited = {.limited = true}, free = {.limited = false};

	ck_assert(user_may(&limited, 3, 1, 4));
	ck_assert(!user_may(&limited, 4, 1, 4));
	ck_assert(user_may(&limited, 4, 0, 4));
	ck_assert(!user_may(&limited, 5, 0, 4)); /* a reload has lowered it */
	ck_assert(!user_may(&limited, 3, UINT64_MAX, 4));
	ck_assert(user_may(&free, 4, 1, 4));
	ck_assert(user_is_operator(0) && user_is_operator(geteuid()));
	ck_assert(!user_is_operator(geteuid() + 54321));
}
END_TEST

/* Which amount, what it follows from, and what to do. */
START_TEST(no_room_for_inline_data_has_a_sentence)
{
	static struct server server = {
		.config = {.max_user_inline_bytes = 1000, .max_frame_bytes = 1 << 20}};
	struct user user = {.limited = true, .held_bytes = 990};
	struct connection connection = {.server = &server, .user = &user};
	struct message_fault fault;

	ck_assert_int_eq(connection_check_held(&connection, 10, &fault), 0);
	ck_assert_int_lt(connection_check_held(&connection, 11, &fault), 0);
	ck_assert_str_eq(fault.text,
		"this user's inline data, unread replies and unfinished frames would be 1001 "
		"bytes, "
		"max_user_inline_bytes is 1000; wait for replies, or use regions");

	server.held_bytes = (256 << 20) + (16 << 20) - 10;
	ck_assert_int_eq(connection_check_held(&connection, 10, &fault), 0);
	user.limited = false;
	ck_assert_int_lt(connection_check_held(&connection, 11, &fault), 0);
	ck_assert_str_eq(fault.text,
		"the daemon holds as much inline data as it may, 285212672 bytes (16 times "
		"max_frame_bytes, and 256 MiB); wait for replies, or use regions");
}
END_TEST

Suite *user_suite(void)
{
	Suite *suite = suite_create("user");
	TCase *tcase = tcase_create("user");

	tcase_add_test(tcase, a_user_is_one_while_it_is_held);
	tcase_add_test(tcase, limits_hold_to_one_and_not_for_operators);
	tcase_add_test(tcase, no_room_for_inline_data_has_a_sentence);
	suite_add_tcase(suite, tcase);
	return suite;
}
