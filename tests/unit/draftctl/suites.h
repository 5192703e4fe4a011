/* One suite a module of draftctl. */
#ifndef TESTS_UNIT_DRAFTCTL_SUITES_H
#define TESTS_UNIT_DRAFTCTL_SUITES_H

#include <check.h>

Suite *arrival_suite(void);
Suite *base_file_suite(void);
Suite *case_file_suite(void);
Suite *file_suite(void);
Suite *histogram_suite(void);
Suite *load_result_suite(void);
Suite *mix_suite(void);
Suite *number_suite(void);
Suite *options_suite(void);
Suite *ramp_suite(void);
Suite *random_suite(void);
Suite *text_suite(void);
Suite *top_view_suite(void);

#endif
