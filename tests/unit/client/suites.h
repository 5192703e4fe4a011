/* Every suite of this room, one a file. */
#ifndef TESTS_CLIENT_SUITES_H
#define TESTS_CLIENT_SUITES_H

#include <check.h>

Suite *connection_suite(void);
Suite *request_suite(void);
Suite *transport_suite(void);
Suite *region_suite(void);
Suite *event_suite(void);
Suite *service_suite(void);
Suite *device_suite(void);

#endif
