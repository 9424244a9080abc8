//! The conformance suite of devices: the guarantees to users of an [`Engine`](crate::Engine), whatever device moves its
//! frames.
//!
//! A [`Case`] is a function that each rank of a small job executes. It does not name a device and reads its limits from
//! the engine. [`run_threads`] runs a case with threads for ranks. A runner in other processes opens an engine, joins a
//! [`Member`] and calls the case that [`find`] returns.
//!
//! | file | contents |
//! |---|---|
//! | `order` | the order of messages, wildcards |
//! | `sizes` `layouts` `chains` | every length and every layout of memory, content checked |
//! | `early` `pressure` | unexpected messages, probes, cancelling; floods |
//! | `held` | sends in succession whose rank then computes |
//! | `idle` | a rank that receives nothing does not stop the others |
//! | `faults` | faults of one receive |
//! | `channels` | contexts, late joins, groups |
//! | `ends` `closing` | ranks that die, ranks that exit |
//! | `lent` | blocks that receivers view in place |
//! | `threads` `model` | several threads of a rank; random traffic |
//! | `late` | a device that completes operations late and in any order, made of one that does not |
//! | `member` `owned` `harness` `pinboard` | tools to write and run cases |

mod async_driver;
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
mod member;
mod model;
mod order;
mod owned;
mod pinboard;
mod pressure;
mod sizes;
mod tasks;
mod threads;
mod unexpected;

pub use async_driver::LateDriver;
pub use harness::{run_threads, unavailable};
pub use member::Member;
pub use owned::{Item, Receiving, Sending};
pub use pinboard::Pinboard;
#[cfg(test)]
pub(crate) use threads::thread_time;

/// A test of one guarantee of a device: a function for each rank of a job.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// The numbers of ranks with which it should be run.
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
            order::many_messages_of_each_pair [2, 3, 5, 8]
            order::any_source_keeps_the_order_of_each [2, 3, 5]
            order::any_tag_keeps_the_order [2, 3, 5]
            order::any_source_and_tag [2, 3, 5, 8]
            order::receives_match_in_the_order_they_were_posted [2, 3, 5]
            order::a_thousand_receives_in_reverse_order_of_tags [2, 3, 5]
            order::waits_in_reverse_order [2, 3, 5]
            sizes::every_size_expected [2, 3, 5]
            sizes::every_size_early [2, 3, 5]
            sizes::every_size_synchronous [2, 3, 5]
            sizes::zero_length [2, 3, 5, 8]
            sizes::to_oneself [1, 2, 3]
            sizes::head_to_head [2, 3, 5, 8]
            layouts::strided_and_contiguous [2, 3, 5]
            layouts::strided_long_messages [2, 3, 5]
            layouts::indexed_blocks [2, 3, 5]
            layouts::mixed_structures [2, 3, 5]
            layouts::strided_to_oneself [1, 2]
            chains::every_size_in_pieces [2, 3]
            chains::many_pieces [2, 3]
            chains::in_pieces_to_oneself [1, 2]
            chains::in_pieces_and_strided [2, 3]
            unexpected::ten_thousand_in_order [2, 3]
            unexpected::two_thousand_in_reverse_order_of_tags [2, 3, 5]
            unexpected::probes_tell_what_comes [2, 3, 5]
            unexpected::a_matched_probe_takes_the_message [2, 3, 5]
            unexpected::cancel_takes_back_an_unmatched_receive [2, 3, 5]
            pressure::a_flood_of_small_messages [2, 3]
            pressure::a_flood_of_eager_messages [2, 3, 5]
            pressure::floods_in_a_circle [2, 3, 5, 8]
            coalesced::a_row_of_sends_leaves_though_its_rank_computes [2, 3, 5]
            coalesced::sends_that_were_waited_for_have_left [2, 3, 5]
            idle::a_rank_that_does_not_poll_stops_nobody [3, 5]
            idle::a_leaver_takes_no_room_with_it [3, 5]
            idle::the_dead_take_no_room_with_them [3, 5]
            faults::truncation_spares_the_rest [2, 3, 5]
            faults::type_mismatch_spares_the_rest [2, 3, 5]
            faults::faults_to_oneself [1, 2]
            faults::bool_and_char_are_checked [2, 3, 5]
            faults::packed_matches_anything [2, 3, 5]
            faults::synchronous_waits_for_the_match [2, 3, 5]
            channels::contexts_are_apart [2, 3, 5]
            channels::a_late_joiner_finds_its_messages [2, 3, 5]
            channels::groups_in_any_order [2, 3, 5, 8]
            channels::many_come_and_go [2, 3]
            channels::leaving_a_channel_gives_room_back [2, 3]
            channels::what_is_refused_fails_at_its_sender [2, 3]
            exits::a_death_ends_all_that_waits [2, 3, 5]
            exits::a_death_leaves_other_channels_alone [3, 5]
            exits::a_dead_ranks_early_announcement_does_not_hang [2, 3, 5]
            exits::messages_from_before_a_death_arrive [2, 3, 5]
            exits::memory_that_went_back_is_left_alone [2, 3, 5]
            exits::a_death_behind_an_open_connection_ends_bodies [2, 3, 5]
            exits::closing_after_flooding_a_dead_rank [2, 3, 5]
            closing::a_leaver_ends_what_waits_for_it [2, 3, 5]
            closing::the_last_one_hears_that_all_have_left [2, 3, 5]
            closing::messages_from_before_a_leave_arrive [2, 3, 5]
            closing::pending_sends_to_closing_peers [2, 3, 5]
            closing::everybody_closes_in_the_middle_of_traffic [2, 3, 5]
            closing::a_synchronous_send_to_oneself_ends [1, 2]
            exports::blocks_are_looked_at_where_they_lie [2, 3, 5]
            exports::blocks_are_received_elsewhere [2, 3, 5]
            exports::a_leaver_does_not_wait_for_its_blocks [2, 3, 5]
            exports::a_receiver_leaves_with_a_block [2, 3]
            exports::the_dead_may_look_on [2, 3, 5]
            exports::what_is_taken_back_is_not_looked_at [2, 3, 5]
            exports::an_owner_sends_when_it_goes [2, 3]
            exports::a_viewed_block_is_not_taken_back [2, 3]
            threads::two_senders_and_two_receivers [2, 3, 5]
            threads::one_receives_and_one_probes [2, 3, 5]
            threads::self_sends_wake_a_sleeping_thread [1, 2]
            threads::a_synchronous_send_to_oneself_wakes_when_it_is_received [1, 2]
            threads::a_receive_wakes_when_its_channel_is_left [1, 2]
            threads::self_sends_meet_receives_of_another_thread [1, 2]
            threads::a_long_wait_sleeps [2, 3]
            tasks::a_wait_for_something_else_drives [2, 3, 5]
            tasks::threads_drive_one_at_a_time [2, 3, 5]
            tasks::a_wait_that_looks_for_something_drives_when_it_has_looked [2, 3]
            model::random_traffic [2, 3, 5, 8]
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
