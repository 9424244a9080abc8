//! Named steps of the protocols, at which a test can have a process killed: `MPJ_KILL_AT=STEP:RANK:COUNT` kills the
//! process of that rank when it reaches the step for the count-th time. Only in debug builds with the feature `conformance`;
//! any other build has none of it.

/// A step that matters when the one who takes it dies there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[cfg_attr(not(feature = "conformance"), expect(unreachable_pub, reason = "tests see it, and no others"))]
pub enum Step {
    /// An eager message is with the device.
    EagerSent,
    /// An eager message has met its receive.
    EagerMatched,
    /// A long message has been announced.
    Announced,
    /// An announcement has arrived, and nothing has been answered.
    AnnouncementSeen,
    /// The body has been asked for.
    Cleared,
    /// A piece of the body is with the device.
    PieceSent,
    /// A piece of the body has landed.
    PieceLanded,
    /// The sender has been told that its message was matched.
    Confirmed,
    /// The rank has begun to close.
    Closing,
}

#[cfg(feature = "conformance")]
impl Step {
    /// All steps.
    pub const ALL: [Step; 9] = [
        Step::EagerSent,
        Step::EagerMatched,
        Step::Announced,
        Step::AnnouncementSeen,
        Step::Cleared,
        Step::PieceSent,
        Step::PieceLanded,
        Step::Confirmed,
        Step::Closing,
    ];
}

/// Notes that `rank` has reached a step.
#[cfg(all(debug_assertions, feature = "conformance"))]
pub(crate) fn reach(step: Step, rank: u32) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};
    static ARMED: OnceLock<Option<(String, u32, u32)>> = OnceLock::new();
    static REACHED: AtomicU32 = AtomicU32::new(0);
    let armed = ARMED.get_or_init(|| {
        let text = std::env::var("MPJ_KILL_AT").ok()?;
        let mut parts = text.split(':');
        let name = parts.next()?.to_owned();
        Some((name, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    });
    let Some((name, victim, count)) = armed else { return };
    if *victim == rank
        && *name == format!("{step:?}")
        && REACHED.fetch_add(1, Ordering::Relaxed) + 1 == *count
    {
        crate::sys::kill_me();
    }
}

/// Notes nothing.
#[cfg(not(all(debug_assertions, feature = "conformance")))]
#[inline(always)]
pub(crate) fn reach(_step: Step, _rank: u32) {}
