/* Doubly linked lists whose links lie in the things that are listed. A head is a link, too; an
 * empty list points to itself, and so does a link that is on no list (after link_init() or
 * link_remove()). No locking. */
#ifndef DAEMON_LIST_H
#define DAEMON_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct link {
	struct link *prev, *next;
};

/* The struct of `type` whose member `member` is `*at`. */
#define LINK_OWNER(at, type, member) ((type *)(void *)((char *)(at)-offsetof(type, member)))

static inline void link_init(struct link *link)
{
	link->prev = link->next = link;
}

/* Of a head: the list is empty. Of a member: it is on no list. */
static inline bool link_alone(const struct link *link)
{
	return link->next == link;
}

/* Puts `link`, which is on no list, at the end of the list of `head`. */
static inline void link_append(struct link *head, struct link *link)
{
	link->prev = head->prev;
	link->next = head;
	head->prev->next = link;
	head->prev = link;
}

static inline void link_remove(struct link *link)
{
	link->prev->next = link->next;
	link->next->prev = link->prev;
	link_init(link);
}

/* Takes the first member out, or returns NULL. */
static inline struct link *link_pop(struct link *head)
{
	struct link *first = head->next;

	if (first == head)
		return NULL;
	link_remove(first);
	return first;
}

/* Moves everything from `from` to the end of `to`. */
static inline void link_splice(struct link *to, struct link *from)
{
	if (link_alone(from))
		return;
	from->next->prev = to->prev;
	to->prev->next = from->next;
	from->prev->next = to;
	to->prev = from->prev;
	link_init(from);
}

#endif
