//! The conformance suite of devices: the guarantees that an [`Engine`](crate::Engine) gives with every device.
//!
//! A [`Case`] is a function that each rank of a small job executes. [`run_threads`] runs a case with threads as ranks.
//! If ranks are processes, each one opens an engine, joins as a [`Member`] and runs the case that [`find`] returns.
//!
//! | file | contents |
//! |---|---|
//! | `order` | the order of messages, wildcards |
//! | `sizes`, `layouts`, `chains` | lengths and layouts of messages, with content checks |
//! | `unexpected`, `pressure` | unexpected messages, probes, cancelled receives; floods |
//! | `coalesced` | short sends by a rank that then computes |
//! | `idle` | ranks that do not receive must not block the others |
//! | `faults` | faults of one receive; packed messages; synchronous sends |
//! | `channels` | contexts, groups, late joins, freed channels |
//! | `exits`, `closing` | ranks that die, ranks that exit normally |
//! | `exports` | messages in pool blocks, which some devices let the receiver view in place |
//! | `threads`, `tasks` | several threads of a rank; tasks that waiting threads poll |
//! | `random_traffic` | random messages, checked against a plan |
//! | `async_driver` | a device that completes the operations of another device late and in any order |
//! | `card_exchange` | the suite of [`CardExchange`](crate::CardExchange) |
//! | `member`, `owned`, `harness`, `local_cards` | tools to write and run cases |

mod async_driver;
mod card_exchange;
mod chains;
mod channels;
mod closing;
mod coalesced;
mod exits;
mod exports;
mod faults;
mod harness;
mod idle;
mod layouts;
mod local_cards;
mod member;
mod order;
mod owned;
mod pressure;
mod random_traffic;
mod sizes;
mod tasks;
mod threads;
mod unexpected;

pub use async_driver::AsyncDriver;
pub use card_exchange::exchange_cards;
pub use harness::{run_threads, unavailable};
pub use local_cards::LocalCardExchange;
pub use member::Member;
pub use owned::{Item, Receiving, Sending};
#[cfg(test)]
pub(crate) use threads::thread_time;

/// A test of one guarantee.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The name of the function, without its module.
    pub name: &'static str,
    /// The job sizes with which to run it.
    pub ranks: &'static [u32],
    /// The function that each rank calls; it panics if the guarantee is violated.
    pub run: fn(&Member),
}

/// Calls the macro `$then` with its arguments and the list of all cases, each as `module::name [ranks]`.
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_case {
    ($then:ident $($arguments:tt)*) => {
        $then! { ($($arguments)*)
            order::messages_of_each_pair_arrive_in_order [2, 3, 5, 8]
            order::any_source_keeps_each_senders_order [2, 3, 5]
            order::any_tag_keeps_the_order [2, 3, 5]
            order::any_source_and_tag_keep_the_order [2, 3, 5, 8]
            order::receives_match_in_posting_order [2, 3, 5]
            order::long_queue_of_receives_matches_in_order [2, 3, 5]
            order::receives_complete_in_any_wait_order [2, 3, 5]
            sizes::expected_messages_of_every_size_arrive [2, 3, 5]
            sizes::unexpected_messages_of_every_size_arrive [2, 3, 5]
            sizes::messages_of_unknown_length_arrive [2, 3, 5]
            sizes::synchronous_messages_of_every_size_arrive [2, 3, 5]
            sizes::empty_messages_match_receives_of_other_types [2, 3, 5, 8]
            sizes::messages_of_every_size_to_self_arrive [1, 2, 3]
            sizes::long_sends_before_receives_do_not_deadlock [2, 3, 5, 8]
            layouts::strided_and_contiguous_layouts_match [2, 3, 5]
            layouts::long_strided_messages_arrive [2, 3, 5]
            layouts::indexed_blocks_arrive [2, 3, 5]
            layouts::structures_match_by_their_primitives [2, 3, 5]
            layouts::strided_messages_to_self_arrive [1, 2]
            chains::chains_of_every_size_arrive [2, 3]
            chains::chains_of_many_pieces_arrive [2, 3]
            chains::chains_to_self_arrive [1, 2]
            chains::chains_match_strided_receives [2, 3]
            unexpected::ten_thousand_unexpected_messages_keep_their_order [2, 3]
            unexpected::unexpected_messages_are_found_by_tag [2, 3, 5]
            unexpected::probe_reports_the_next_message [2, 3, 5]
            unexpected::mprobe_removes_the_message [2, 3, 5]
            unexpected::cancel_removes_an_unmatched_receive [2, 3, 5]
            pressure::flood_of_small_messages_stays_within_the_credit [2, 3]
            pressure::flood_of_eager_messages_stays_within_the_credit [2, 3, 5]
            pressure::circular_floods_do_not_deadlock [2, 3, 5, 8]
            coalesced::sends_leave_while_their_rank_computes [2, 3, 5]
            coalesced::completed_sends_have_left [2, 3, 5]
            idle::rank_that_does_not_poll_does_not_block_others [3, 5]
            idle::exited_rank_with_unread_messages_does_not_block_others [3, 5]
            idle::dead_rank_with_unread_messages_does_not_block_others [3, 5]
            faults::truncation_fails_only_its_receive [2, 3, 5]
            faults::type_mismatch_fails_only_its_receive [2, 3, 5]
            faults::faults_to_self_fail_only_their_receive [1, 2]
            faults::invalid_bool_and_char_are_rejected [2, 3, 5]
            faults::packed_matches_every_type [2, 3, 5]
            faults::synchronous_send_waits_for_the_match [2, 3, 5]
            channels::contexts_do_not_mix [2, 3, 5]
            channels::late_join_receives_earlier_messages [2, 3, 5]
            channels::groups_may_have_any_order [2, 3, 5, 8]
            channels::ranks_of_an_intercommunicator_are_those_of_the_remote_group [2, 3, 5]
            channels::channels_are_created_and_freed_repeatedly [2, 3]
            channels::freeing_a_channel_returns_credit [2, 3]
            channels::refused_synchronous_send_fails [2, 3]
            exits::death_fails_all_pending_operations [2, 3, 5]
            exits::rank_that_others_have_lost_fails_too [2, 3, 5]
            exits::death_spares_channels_without_the_dead_rank [3, 5]
            exits::death_in_either_group_breaks_an_intercommunicator [2, 3, 5]
            exits::rendezvous_message_of_a_dead_rank_does_not_hang [2, 3, 5]
            exits::messages_sent_before_a_death_arrive [2, 3, 5]
            exits::returned_memory_is_not_written_after_a_death [2, 3, 5]
            exits::death_ends_bodies_of_an_open_connection [2, 3, 5]
            exits::close_succeeds_after_flooding_a_dead_rank [2, 3, 5]
            closing::exit_fails_operations_that_need_the_rank [2, 3, 5]
            closing::any_source_receive_fails_when_all_others_have_exited [2, 3, 5]
            closing::any_source_receive_needs_the_remote_group_only [3, 5]
            closing::messages_sent_before_an_exit_arrive [2, 3, 5]
            closing::pending_sends_fail_when_all_ranks_close [2, 3, 5]
            closing::all_ranks_close_during_traffic [2, 3, 5]
            closing::close_fails_a_synchronous_send_to_self [1, 2]
            exports::blocks_are_viewed_in_place [2, 3, 5]
            exports::blocks_are_copied_into_other_memory [2, 3, 5]
            exports::close_does_not_wait_for_viewed_blocks [2, 3, 5]
            exports::receiver_exits_with_a_viewed_block [2, 3]
            exports::blocks_viewed_by_a_dead_rank_are_not_reused [2, 3, 5]
            exports::cancelled_block_cannot_be_viewed [2, 3, 5]
            exports::owner_of_a_block_sends_when_dropped [2, 3]
            exports::viewed_block_cannot_be_cancelled [2, 3]
            threads::concurrent_senders_and_receivers_keep_the_order [2, 3, 5]
            threads::receive_and_probe_wait_in_two_threads [2, 3, 5]
            threads::self_sends_wake_a_sleeping_thread [1, 2]
            threads::synchronous_self_send_wakes_when_received [1, 2]
            threads::receive_wakes_when_its_channel_is_freed [1, 2]
            threads::self_sends_match_receives_of_another_thread [1, 2]
            threads::long_wait_sleeps [2, 3]
            tasks::unrelated_wait_polls_tasks [2, 3, 5]
            tasks::one_thread_polls_a_task_at_a_time [2, 3, 5]
            tasks::tasks_are_polled_while_a_wait_condition_probes [2, 3]
            random_traffic::random_traffic_matches_its_plan [2, 3, 5, 8]
        }
    };
}

macro_rules! table {
    (() $($module:ident :: $name:ident [$($ranks:literal),*])*) => {
        /// Every case.
        pub const CASES: &[Case] = &[$(
            Case { name: stringify!($name), ranks: &[$($ranks),*], run: $module::$name },
        )*];
    };
}

for_each_case!(table);

/// Returns the case with this name.
pub fn find(name: &str) -> Option<&'static Case> {
    CASES.iter().find(|case| case.name == name)
}
