"""Every fault that a fleet has to survive, and the test that has it.

For each the promise is kept: an accepted call has exactly one terminal reply, what must not run
twice has run at most once, and nothing is left that does not go by itself (`reckoning`).
`cables` are networks that break. Faults in random order are in `tests/fleet/chaos`.

Workers
    killed (SIGKILL)
        test_worker_faults test_what_a_dead_worker_had_begun_runs_again_if_it_may
        test_worker_faults test_with_the_process_beside_it_a_worker_dies_and_others_take_over
    stopped and woken (SIGSTOP): it ends, and renews, what is no longer its own
        test_worker_faults \
test_a_worker_that_was_stopped_loses_its_calls_and_gives_them_up_when_it_goes_on
        test_queue test_a_requeued_call_no_longer_belongs_to_its_first_worker
    a call longer than the lease, one that blocks the loop, or keeps the interpreter's lock
        test_worker_faults test_a_call_that_is_longer_than_the_lease_keeps_it
    a call that kills its workers
        test_worker_faults test_a_call_that_kills_its_workers_is_given_up
        test_worker_faults test_a_call_that_shared_its_process_with_a_poison_call_is_tried_alone
    frozen while it is idle
        test_keeper test_an_idle_worker_that_is_frozen_is_killed_and_replaced
    drained (SIGTERM)
        test_worker_faults test_a_worker_that_leaves_ends_what_it_can_and_hands_the_rest_on
    1,000 restarts; 2,000 live calls before an abandoned one
        faults.test_sweeping test_1000_workers_that_came_and_went_leave_nothing
        faults.test_sweeping test_an_abandoned_call_behind_2000_live_ones_is_found
    dead, and its connection still open
        faults.test_sweeping \
test_a_call_delivered_to_a_worker_that_just_died_is_requeued_uncounted
    stopped while it takes over what another left; cut off while it asks what it has
        faults.test_sweeping test_a_sweeper_that_leaves_sees_to_what_it_has_just_taken_over
        test_embedded_worker \
test_a_call_that_ends_while_a_worker_asks_what_it_holds_is_not_begun_again

Calls
    made again: at once, while it runs, after its end, with other arguments, by another caller
        test_kiln_contract test_an_id_makes_a_call_of_its_caller_run_once
        test_fronts test_an_id_runs_once_whichever_is_asked
        test_queue test_a_repeated_call_runs_once_and_both_callers_get_the_reply
        test_queue test_an_id_with_another_call_is_a_conflict
    rejected, then tried again under the same id; a backlog beyond admission
        test_queue test_beyond_the_depth_calls_are_refused_and_can_be_tried_again
        test_queue test_while_the_oldest_waits_too_long_calls_are_refused
        test_client test_an_overloaded_queue_says_when_to_retry
    a cancellation that races the end
        test_worker_faults test_of_a_cancellation_and_a_result_one_wins
        test_queue test_a_call_that_runs_is_asked_to_stop_and_one_end_wins
    bodies of 50 MB
        test_queue test_what_is_too_large_is_refused_before_it_is_sent
        test_worker_faults test_a_large_result_is_an_answer_like_any_other
        test_queue test_large_bodies_travel_beside_the_streams_and_leave_nothing
    malformed and hostile entries
        test_queue test_an_unreadable_entry_is_dead_lettered_and_its_caller_notified
        test_queue test_damaged_keys_do_not_stop_other_calls_from_ending
    a forged identity
        test_worker test_a_call_that_is_not_sealed_is_forged
        test_worker test_a_result_is_not_returned_to_another_caller_with_the_same_id
        test_trust test_a_call_that_was_changed_on_its_way_is_forged
    replies injected and read by others
        test_deploy test_a_client_can_neither_read_nor_write_the_replies_of_another
    the catalog changes meanwhile; two versions at once
        faults.test_versions test_while_one_version_replaces_another_every_call_is_answered
        test_rolling test_a_worker_runs_the_version_that_its_caller_saw

Callers
    one that dies
        faults.test_callers \
test_the_call_of_a_caller_that_dies_runs_to_its_end_and_leaves_nothing
    one that loses patience, and a late reply
        test_client test_a_late_reply_is_ignored
    one that is cut off while its reply is sent
        faults.test_network test_a_caller_that_was_cut_off_when_its_call_ended_gets_the_reply_later

Networks
    none at all
        faults.test_network test_a_caller_without_a_network_learns_that_its_call_was_not_sent
    none for a moment, before a call is sent or begun
        faults.test_network test_a_call_waits_for_redis_while_nothing_was_sent
        faults.test_network test_a_worker_waits_for_redis_to_find_out_who_calls
    the answer to a write is lost
        test_client test_a_lost_answer_does_not_make_a_call_run_twice
        faults.test_network test_an_end_whose_confirmation_is_lost_is_sent_once
        faults.test_network \
test_what_was_on_its_way_to_a_worker_when_the_connection_broke_still_runs
    a half-open connection
        faults.test_network test_a_caller_that_was_cut_off_when_its_call_ended_gets_the_reply_later
        test_connection test_a_connection_that_broke_without_a_word_is_noticed_and_replaced
    a partition while the tool runs
        faults.test_network \
test_a_worker_that_is_cut_off_loses_its_calls_and_what_it_does_counts_no_more
        faults.test_network test_a_partition_shorter_than_the_lease_costs_nothing

Redis
    restarted without persistence
        faults.test_restarts test_of_a_redis_that_forgot_calls_every_call_still_ends
    restarted from a snapshot
        faults.test_restarts test_a_call_that_ended_after_the_snapshot_does_not_run_again
        faults.test_restarts test_a_call_that_ran_when_the_snapshot_was_made_does_not_run_again
    killed, with a log of its writes
        faults.test_restarts test_a_redis_that_is_killed_and_keeps_a_log_loses_nothing
    failover, to a replica that lags
        faults.test_restarts \
test_after_a_failover_to_a_replica_that_lagged_no_call_runs_twice_and_all_end
        test_failover test_calls_outlive_the_primary_behind_a_sentinel
    no memory left; a policy that throws keys away
        test_queue test_without_memory_calls_are_refused_and_those_under_way_still_end
        test_connection test_a_server_that_throws_keys_away_is_refused
    a clock that is set
        faults.test_clocks test_entries_from_a_clock_that_was_ahead_disturb_nothing
        test_queue test_replies_of_a_server_whose_clock_is_behind_are_read
"""
