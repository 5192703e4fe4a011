#include "user.h"

#include <stdlib.h>
#include <unistd.h>

bool user_is_operator(uid_t uid)
{
	return uid == 0 || uid == geteuid();
}

struct user *user_hold(struct link *users, uid_t uid)
{
	struct user *user;

	for (struct link *link = users->next; link != users; link = link->next) {
		user = LINK_OWNER(link, struct user, link);
		if (user->uid == uid) {
			user->holds++;
			return user;
		}
	}
	user = calloc(1, sizeof(*user));
	if (!user)
		return NULL;
	user->uid = uid;
	user->limited = !user_is_operator(uid);
	user->holds = 1;
	link_append(users, &user->link);
	return user;
}

void user_drop(struct user *user)
{
	if (!user || --user->holds)
		return;
	link_remove(&user->link);
	free(user);
}

bool user_may(const struct user *user, uint64_t used, uint64_t more, uint64_t most)
{
	return !user->limited || (used <= most && more <= most - used);
}
