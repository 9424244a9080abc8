//! The calls of a schedule.

/// Which messages a receive accepts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Pattern {
    pub(super) comm: usize,
    /// The rank in the communicator, and the thread, that receives.
    pub(super) to: usize,
    pub(super) lane: usize,
    /// `None` accepts any.
    pub(super) source: Option<usize>,
    pub(super) tag: Option<i32>,
}

/// The data path of a call.
#[derive(Clone, Copy, Debug)]
pub(super) enum Path {
    Default,
    Auto,
    Buffered,
    ZeroCopy,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SendBy {
    Send,
    Ssend,
    Rsend,
    Scope,
    Bsend,
    Isend,
    Issend,
    Irsend,
    Ibsend,
    SendInit,
    SsendInit,
    RsendInit,
    BsendInit,
    SendObject,
    IsendObject,
}

impl SendBy {
    pub(super) const BLOCKING: &[SendBy] = &[SendBy::Send, SendBy::Ssend, SendBy::Rsend, SendBy::Scope];
    /// These return without the receive. Waiting for the operation may block.
    pub(super) const STARTED: &[SendBy] = &[
        SendBy::Isend,
        SendBy::Isend,
        SendBy::Isend,
        SendBy::Issend,
        SendBy::Irsend,
        SendBy::Ibsend,
        SendBy::Bsend,
        SendBy::SendInit,
        SendBy::SsendInit,
        SendBy::RsendInit,
        SendBy::BsendInit,
    ];

    pub(super) fn may_block(self) -> bool {
        Self::BLOCKING.contains(&self) || self == SendBy::SendObject
    }

    pub(super) fn has_request(self) -> bool {
        !self.may_block() && self != SendBy::Bsend
    }

    pub(super) fn is_persistent(self) -> bool {
        matches!(self, SendBy::SendInit | SendBy::SsendInit | SendBy::RsendInit | SendBy::BsendInit)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RecvBy {
    Recv,
    RecvVec,
    Scope,
    /// Probes, and receives by the status.
    Probe,
    Iprobe,
    Mprobe,
    Improbe,
    Irecv,
    /// Posts a receive and cancels it. If it was cancelled, posts another one.
    CancelledIrecv,
    RecvInit,
    RecvObject,
    IrecvObject,
}

impl RecvBy {
    pub(super) const BLOCKING: &[RecvBy] = &[
        RecvBy::Recv,
        RecvBy::Recv,
        RecvBy::RecvVec,
        RecvBy::Scope,
        RecvBy::Probe,
        RecvBy::Iprobe,
        RecvBy::Mprobe,
        RecvBy::Improbe,
    ];
    pub(super) const STARTED: &[RecvBy] =
        &[RecvBy::Irecv, RecvBy::Irecv, RecvBy::Irecv, RecvBy::CancelledIrecv, RecvBy::RecvInit];

    pub(super) fn may_block(self) -> bool {
        Self::BLOCKING.contains(&self) || self == RecvBy::RecvObject
    }
}

/// How a thread waits for a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum WaitBy {
    Wait,
    /// Tests it until it has completed.
    Test,
    /// Waits with a short time limit, repeatedly.
    Timed,
}

/// A call of one thread. `op` is the number of a send or a receive, by which a [`Call::Wait`] names it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Call {
    Send {
        op: usize,
        message: usize,
        by: SendBy,
        path: Path,
    },
    Recv {
        op: usize,
        pattern: Pattern,
        /// The length of the buffer in bytes.
        room: usize,
        by: RecvBy,
        path: Path,
    },
    Wait {
        op: usize,
        by: WaitBy,
    },
    /// Sends a message, and receives another one at the same time.
    Exchange {
        send: usize,
        received: usize,
        replaces: bool,
    },
    Iprobe {
        pattern: Pattern,
    },
    /// Posts a receive that no message matches, and cancels it.
    CancelUnmatched {
        comm: usize,
        tag: i32,
    },
    Free {
        comm: usize,
    },
}
